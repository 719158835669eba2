"""Nobody listens at the address that ranks connect to."""

from collections.abc import Iterator

from nccl_inspect.judging.connecting import (
    REFUSED,
    addresses,
    failed_connections,
    has_built_communicator,
    retried_connections,
)
from nccl_inspect.judging.engine import Facts, Notice, first_evidence, value
from nccl_inspect.judging.page_words import Hit

_START = 5
"""Attempts that a rank may need while rank 0 starts: 1.5 s since 2.24; earlier releases print every thousandth."""


def find(facts: Facts) -> Iterator[Hit]:
    """Find connections that NCCL gave up on, and those it was still retrying when the job or the log ended."""
    failures, retries = failed_connections(facts, *REFUSED), retried_connections(facts, *REFUSED)
    named = {"where": addresses([*failures, *retries]) or "another rank", "given up": failures}
    if failures or (retries and facts.job.ended_by and not has_built_communicator(facts)):
        yield Hit(failures or retries, named)
    elif retries and not has_built_communicator(facts):
        known = "open" if any(map(_is_beyond_start, retries)) else "starting"
        yield Hit(retries, named, (known,), evidence=first_evidence(retries[-3:]))


def _is_beyond_start(notice: Notice) -> bool:
    attempt = value(notice, "attempt")
    return attempt is None or int(attempt) > _START
