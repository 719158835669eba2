"""Extras import the core, never the reverse: each folder can be deleted. Their ``cli_NAME.py`` are commands."""
