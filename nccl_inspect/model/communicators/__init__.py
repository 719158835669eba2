"""Communicators: who their members are, and which connection lines are theirs."""
