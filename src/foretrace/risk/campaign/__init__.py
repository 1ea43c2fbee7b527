"""A whole training campaign: what fails, what recovery costs, how much time is left to train."""
