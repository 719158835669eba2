"""Logs inside of JSON documents, JSON lines and CSV tables, as collectors and clouds export them."""
