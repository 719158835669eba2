"""Hits of rules about failed CUDA calls."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from nccl_inspect.judging.check import Hit
from nccl_inspect.judging.facts import Facts
from nccl_inspect.judging.hardware import cuda


def make_hit(
    facts: Facts, failed: list[cuda.Failure], steps: Iterable[str], known: Mapping[str, object] | None = None
) -> Hit:
    """Return the hit of some failed calls.

    Args:
        facts: about the job.
        failed: the calls; the first one decides the cause.
        steps: show more, where the error itself is not the cause.
        known: more values.
    """
    first = failed[0]
    named = {
        "file": first.file,
        "errors": list(dict.fromkeys(map(cuda.words, failed))),
        "cause": cuda.cause(first.code),
        "steps": cuda.on_hardware(cuda.fix(first.code, steps), facts),
        **(known or {}),
    }
    return Hit([failure.notice for failure in failed], named, explains=cuda.matching_exceptions(facts, failed))
