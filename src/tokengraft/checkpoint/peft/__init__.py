"""Adapters of PEFT: read and written without PEFT."""
