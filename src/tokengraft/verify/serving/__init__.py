"""Checks whether a serving stack can use a folder: what each one reads, and what breaks there.

A stack that is a library is asked. What vLLM, llama.cpp and Ollama do was read in their
sources: `facts.json` has each fact with the version, and its findings print that version.
"""
