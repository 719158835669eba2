"""The levels of NCCL's lines (src/debug.cc), as printed after ``NCCL``."""

LEVELS = (b"INFO", b"WARN", b"ATTN", b"TRACE", b"CALL", b"ABORT")
"""ATTN since 2.32: something needs attention but did not fail, most of it a warning before."""
STATEMENTS = ("WARN", "ATTN")  # those whose lines are statements, whatever they say
ANY = b"|".join(LEVELS)  # one of them, in a regular expression
