"""Floor 5: numbers with their odds: distributions of step times, failures, effective time."""
