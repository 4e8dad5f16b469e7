"""Checks whether a serving stack can use a folder: what each one reads, and what breaks there. One module per stack.

The facts are from the source of each stack. `docs/serving.md` lists them with files and versions.
"""
