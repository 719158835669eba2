"""Gates: `check` compares a run with a policy, `diff` with another run."""
