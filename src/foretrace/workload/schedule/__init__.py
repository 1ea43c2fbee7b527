"""Schedules of pipelines as data: the order of units on every stage."""
