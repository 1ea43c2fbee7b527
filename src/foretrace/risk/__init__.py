"""Floor 6: numbers with their odds: distributions of step times, failures, effective time."""
