"""Floor 5: a model, a plan and a machine become a step that has not been run."""
