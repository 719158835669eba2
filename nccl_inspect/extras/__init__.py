"""Extras import the core, never the reverse: each folder can be deleted. Their ``command_NAME.py`` are commands."""
