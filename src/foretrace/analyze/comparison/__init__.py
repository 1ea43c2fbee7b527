"""Two timelines side by side: whose time each moment is, on each side, and what changed."""
