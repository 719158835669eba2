"""Bytes in, lines with their prefix taken apart out; knows files and launchers, not what NCCL's messages mean."""
