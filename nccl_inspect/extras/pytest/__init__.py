"""Fixtures and assertions for tests of clusters."""
