"""Arranging: nodes in issue order, from a model or from a recording, become an `ExecutionGraph`."""
