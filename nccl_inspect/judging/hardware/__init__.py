"""GPUs, CUDA and machine types."""
