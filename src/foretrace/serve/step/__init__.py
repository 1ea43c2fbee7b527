"""How long one step of an engine takes."""
