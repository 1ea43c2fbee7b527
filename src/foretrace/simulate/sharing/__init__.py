"""Hosts whose threads share processor cores: an event-driven engine, and the way back from it."""
