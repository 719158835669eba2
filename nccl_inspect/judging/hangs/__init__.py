"""Hangs: which ranks wait for which, and how far each one got."""
