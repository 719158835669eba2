"""Processes: who printed what, restarts, and lines that collectors copied."""
