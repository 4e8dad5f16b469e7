"""Writes complete results or nothing (`atomic`), result files, and JSON that keeps its layout."""
