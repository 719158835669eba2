"""Explains single log lines: what they mean, which rule they lead to, and what to do first."""
