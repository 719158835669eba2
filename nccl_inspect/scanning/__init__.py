"""Finds the messages of the grammar in lines: the one place that knows both."""
