"""From inputs to judged jobs: reading in one process or several."""
