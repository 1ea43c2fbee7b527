"""How often hosts fail, and of what: published tables, or the user's own log."""
