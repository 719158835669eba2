"""What every room uses and nothing of NCCL is in: records, texts, times, files written whole."""
