"""Paths between ranks, put together from the connection lines of both ends."""
