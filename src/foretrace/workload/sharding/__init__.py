"""Embedding tables over ranks: how they are cut, where the pieces stand, what they exchange."""
