"""Reads text: finds the inputs (`open`), reads them in blocks for the core (`blocks`) or by document.

Every command reads text with this package, so that all see the same documents.
"""
