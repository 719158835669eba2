"""Measured bandwidth against expected: result tables in logs, published figures, and a verdict with a number.

``lines`` keeps what looks like a result while a log is read, ``tables`` makes rows of it, ``expectation`` says what the
paths of the job should give (``figures/*.toml`` hold what is published, each with its source), ``measured`` compares.
"""
