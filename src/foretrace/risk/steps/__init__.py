"""Step-time distributions: how durations vary, and what a job makes of it."""
