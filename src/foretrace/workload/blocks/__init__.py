"""Blocks: what a rank does for one microbatch of a model under a plan."""
