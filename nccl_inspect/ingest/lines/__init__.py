"""What stands around a message in a line, and lines that belong together."""
