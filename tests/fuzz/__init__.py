"""Hostile inputs of every reader and every command, made by changing good ones.

`python -m tests.fuzz` runs many with a fresh seed; `test_fuzz.py` runs a fixed number of them, and
the cases in `corpus/` that once ended otherwise than in an answer or a sentence.
"""
