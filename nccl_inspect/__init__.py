"""Reads what NCCL prints with ``NCCL_DEBUG=INFO``."""
