"""The options of all commands, as data."""
