"""Layout: blocks under a plan become an `ExecutionGraph`."""
