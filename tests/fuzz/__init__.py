"""Fuzzing of all parsers: mutated files give a result or a `TokengraftError`, in bounded time and memory.

`python -m fuzz --seconds 600` runs it. A case is a target, a seed and an index; the three give the same files again.
"""
