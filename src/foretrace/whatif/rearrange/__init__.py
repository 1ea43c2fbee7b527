"""A recorded program under another plan, or with other layers, becomes a new job's pieces."""
