"""Flows on links: who is there, and how fast each goes."""
