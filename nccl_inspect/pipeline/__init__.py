"""From inputs to judged jobs: reading in one process, several, or on a cluster."""
