"""Changes to durations and dependencies of a graph whose structure stays: no plan, no sizes."""
