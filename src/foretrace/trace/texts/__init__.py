"""Unique texts, stored once each."""
