"""Configurations of other training software as plans and models, and back."""
