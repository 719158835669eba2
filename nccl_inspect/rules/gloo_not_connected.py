"""Gloo, which connects processes alongside NCCL, found no interface or could not reach all processes."""

from collections.abc import Iterator

from nccl_inspect.judging import exceptions
from nccl_inspect.judging.engine import Effects, Facts, first_evidence, value
from nccl_inspect.judging.page_words import Hit
from nccl_inspect.judging.statements import rank_prefix

_FAILED = ("torch/gloo-no-interface", "torch/gloo-connect-failed", "torch/gloo-not-connected")


def find(facts: Facts) -> Iterator[Hit | Effects]:
    """Find Gloo's messages, the most specific first."""
    caught = [notice for notice in facts.notices(*_FAILED) if exceptions.is_caught(facts, notice)]
    missing, refused, others = ([n for n in facts.notices(name) if n not in caught] for name in _FAILED)
    stated = facts.errors_of_rule("gloo-not-connected")
    # With communicators, Gloo connected once: it lost a process that ended or hangs for another reason.
    yield Effects([*caught, *(stated if facts.job.communicators else [])])
    notices = [*missing, *refused, *others, *([] if facts.job.communicators else stated)]
    late = facts.notices("torch/barrier-not-passed")
    if notices:
        ranks = {rank for notice in notices if (rank := rank_prefix(notice)) is not None}
        named = {
            "missing": list(dict.fromkeys(str(value(notice, "interface")) for notice in missing)),
            "where": list(dict.fromkeys(f"{value(notice, 'address')}:{value(notice, 'port')}" for notice in refused)),
            # If communicators exist, the exception of an unknown process may have been caught.
            "dead": not facts.job.communicators or (missing and (ranks or facts.job.ended_by)),
        }
        yield Hit(notices, named, (), ranks, (), first_evidence(notices))
    elif late and not facts.job.last_lines:
        yield Hit(late, {"late": value(late[0], "ranks")}, (), (), ())
