"""Gathers events, and concludes nothing: state that two pieces of a log can be joined from."""
