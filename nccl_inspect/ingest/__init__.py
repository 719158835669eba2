"""Bytes in, lines with parsed prefixes out; knows files and launchers, not the meaning of NCCL's messages."""
