"""The levels of NCCL's lines (src/debug.cc), as they stand behind ``NCCL``."""

LEVELS = (b"INFO", b"WARN", b"ATTN", b"TRACE", b"CALL", b"ABORT")
"""ATTN since 2.32: what wants attention and is no failure, most of it a warning before."""
STATEMENTS = ("WARN", "ATTN")
"""Those whose lines are statements, whatever they say."""
ANY = b"|".join(LEVELS)
"""One of them, in a regular expression."""
