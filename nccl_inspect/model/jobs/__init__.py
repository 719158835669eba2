"""Separates the jobs of one input."""
