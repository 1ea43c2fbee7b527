"""JSON as bytes."""
