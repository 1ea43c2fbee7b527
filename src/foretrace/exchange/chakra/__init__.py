"""Graphs become Chakra execution traces."""
