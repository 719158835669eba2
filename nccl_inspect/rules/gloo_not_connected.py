"""Gloo, which connects processes beside NCCL, found no interface or did not reach all."""

from collections.abc import Iterator

from nccl_inspect.judging.engine import Effects, Result, Rule
from nccl_inspect.judging.facts import Facts, first_said
from nccl_inspect.judging.process_ends import exceptions
from nccl_inspect.judging.statements import rank_in_front, value
from nccl_inspect.model.job import Notice
from nccl_inspect.util.wording import listed

RULE = Rule(
    name="gloo-not-connected",
    category="bootstrap",
    severity="error",
    title="Gloo, which connects processes beside NCCL, found no interface or did not reach all",
)
_FAILED = ("torch/gloo-no-interface", "torch/gloo-connect-failed", "torch/gloo-not-connected")
_CHOOSE = "GLOO_SOCKET_IFNAME=<interface>   # on all ranks: a whole name; mostly the same as NCCL_SOCKET_IFNAME"
_ADDRESSES = "ip -br addr   # on each host, inside the container: which interface do all share?"
_OWN_NAME = "getent hosts $(hostname)   # on each host: 127.0.1.1 there, as some installers write it to /etc/hosts?"


def judge(facts: Facts) -> Iterator[Result]:
    """Judge what Gloo says, in the order of how much it tells."""
    caught = [one for one in facts.notices(*_FAILED) if exceptions.is_caught(facts, one)]
    yield Effects(caught)
    missing, refused, others = ([one for one in facts.notices(name) if one not in caught] for name in _FAILED)
    said = [*missing, *refused, *others]
    if not said:
        return
    ranks = {rank for notice in said if (rank := rank_in_front(notice)) is not None}
    # Beside communicators the exception of nobody may have been caught.
    is_dead = not facts.job.communicators or bool(missing and (ranks or facts.job.ended_by))
    yield RULE.finding(
        _what(missing, refused),
        cause="GLOO_SOCKET_IFNAME, or a setting of the framework that becomes it, names an interface that this host or "
        "container does not have; or it has no address"
        if missing
        else "without GLOO_SOCKET_IFNAME Gloo gives the others the address that the own host name stands for: on two "
        "hosts one of loopback (127.0.1.1 in /etc/hosts) or of an interface that they do not reach. Else a firewall, "
        "or a process that ended before",
        impact="the program ends before or beside NCCL: process groups of PyTorch for the CPU use Gloo",
        fix=[_ADDRESSES, _CHOOSE] if missing else [_OWN_NAME, _ADDRESSES, _CHOOSE],
        confidence="certain" if missing and is_dead else "likely",
        ranks=ranks,
        evidence=first_said(said),
        fatal=is_dead,
    )


def _what(missing: list[Notice], refused: list[Notice]) -> str:
    if missing:
        names = dict.fromkeys(str(value(one, "interface")) for one in missing)
        return f"Gloo finds no interface {listed(names)}"
    where = dict.fromkeys(f"{value(one, 'address')}:{value(one, 'port')}" for one in refused)
    return "Gloo cannot connect processes with each other" + (f": no connection to {listed(where)}" if where else "")
