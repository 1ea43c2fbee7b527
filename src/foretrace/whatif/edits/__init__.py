"""Edits: named values, each of which maps a scenario to a scenario."""
