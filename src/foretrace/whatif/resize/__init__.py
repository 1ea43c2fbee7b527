"""Recorded operators at other sizes: their new shapes, and what they take."""
