"""Processes could not meet in PyTorch's store, which distributes the ids of NCCL's communicators."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from nccl_inspect.judging import exceptions
from nccl_inspect.judging.check import Effects, Facts, Hit, Notice, first_evidence, value
from nccl_inspect.judging.line_order import is_before, short
from nccl_inspect.judging.statements import is_error, rank_prefix
from nccl_inspect.util.patterns import compile_later

_REACH = "nc -vz {address} {port}; getent hosts {address}   # from this host or pod: does it answer?"
_GROUP = compile_later(r"/default_pg/0//(\w{1,64})//cuda")
"""The group, other than that of all ranks, to which a key of the store belongs."""
_FIRST = (
    "torch/store-listen-failed",
    "torch/store-join-timeout",
    "torch/store-connect-timeout",
    "torch/store-unreachable",
)
_AFTER_THE_END = {"torch/rendezvous-closed", "torch/store-closed", "torch/store-lost"}
"""While NCCL is up, these follow from an end that may not be in this log."""


def find(facts: Facts) -> Iterator[Hit | Effects]:
    """Find PyTorch's errors about its store; those before a communicator came up no longer matter."""
    errors = [notice for notice in facts.with_role("store-failed") if is_error(notice)]
    if not errors and not facts.job.last_lines and (waits := facts.notices("torch/store-waits")):
        yield Hit(waits[-1:], {"reach": _reach([])}, ranks=(), hosts=(), evidence=first_evidence(waits))
    communicators = facts.job.communicators if errors else ()
    begins = [comm.evidence[0] for comm in communicators if comm.completed and comm.evidence]
    before = [error for error in errors if any(is_before(error.evidence[0], begin) for begin in begins)]
    yield Effects(before)  # a later attempt succeeded
    errors = [error for error in errors if error not in before and not (begins and error.production in _AFTER_THE_END)]
    if errors:
        connecting = [error for error in errors if error.production in _FIRST[2:]]
        waiting = [error for error in errors if error.production == "torch/store-wait-timeout"]
        keys = [str(value(error, "key")) for error in waiting]
        groups = dict.fromkeys(match[1] for error in errors if (match := _GROUP.search(error.message)))
        unresolved = facts.notices("torch/store-name-unresolved") if connecting else []
        failed = facts.notices("torch/store-connect-failed") if connecting else []  # else a later attempt succeeded
        detail = next((str(value(error, "_detail")) for error in errors if error.production == _FIRST[0]), "")
        first = [
            error for production in (*_FIRST[:2], *_FIRST[2:]) for error in errors if error.production == production
        ]
        yield Hit(
            errors,
            {
                "begun": begins,
                "keys": keys,
                "of NCCL": len(waiting) < len(errors) or any("cuda//" in key or "ncclUniqueId" in key for key in keys),
                "groups": " and of ".join(groups),
                "taken": "EADDRINUSE" in detail or "already in use" in detail,
                "places": [f"{value(error, 'address')}:{value(error, 'port')}" for error in connecting],
                "unresolved": next((value(notice, "error") for notice in unresolved), None),
                "refusal": ", ".join(sorted({str(value(notice, "error")) for notice in failed})),
                "reach": _reach(connecting),
                "raised": _last_exception(facts, errors),
            },
            ranks={rank for error in errors if (rank := rank_prefix(error)) is not None},
            hosts=(),
            evidence=first_evidence([*first, *errors]),
        )


def _last_exception(facts: Facts, errors: list[Notice]) -> str:
    """Return the last exception not attributable to a rank, which may have ended the missing process."""
    lines = {(line.source, line.order) for error in errors for line in error.evidence}
    loose = [
        raised
        for raised in exceptions.exceptions_of(facts).loose
        if (raised.line.source, raised.line.order) not in lines and not raised.is_loss_of_peer
    ]
    return f"{loose[-1].text} ({short(loose[-1].line)})" if loose else ""


def _reach(errors: list[Notice]) -> str:
    """Return the check with the address from the log, if there is exactly one."""
    places = {(str(value(error, "address")), str(value(error, "port"))) for error in errors}
    if len(places) != 1:
        return _REACH.format(address="$MASTER_ADDR", port="$MASTER_PORT")
    ((address, port),) = places
    return _REACH.format(address=shlex.quote(address), port=shlex.quote(port))
