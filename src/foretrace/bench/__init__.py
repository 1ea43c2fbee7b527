"""Floor 4: an execution trace becomes a runnable benchmark."""
