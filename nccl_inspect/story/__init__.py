"""What happened, in order: one causal story of everything that went wrong in a job."""
