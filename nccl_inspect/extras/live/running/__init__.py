"""Runs a job with what the best report needs, passes all of it through, and keeps what it prints."""
