"""Huge and hostile inputs: `python -m limits` runs them and prints a table; `test_proportion.py` has small ones."""
