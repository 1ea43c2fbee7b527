"""Footprint: bytes that a plan needs on every rank, and when."""
