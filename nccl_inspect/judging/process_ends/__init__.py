"""Process ends: which process ended first, and how."""
