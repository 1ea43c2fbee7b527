"""One record of a profiler's file."""
