"""Logs that are still written: their tail, what is to be reported of it, when to stop."""
