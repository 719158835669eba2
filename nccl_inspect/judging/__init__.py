"""What rules stand on: the engine that runs them, the facts that they ask, verdicts."""
