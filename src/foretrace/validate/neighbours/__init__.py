"""Published runs predicted from runs that differ from them in one thing."""
