"""Who ended first, and how."""
