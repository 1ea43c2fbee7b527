"""Published training runs, predicted from their configuration."""
