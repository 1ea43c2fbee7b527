"""Durations that are drawn while a graph is simulated."""
