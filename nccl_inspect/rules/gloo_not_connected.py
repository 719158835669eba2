"""Gloo, which connects processes alongside NCCL, found no interface or could not reach all processes."""

from nccl_inspect.judging.engine import (
    Effects,
    Facts,
    Finding,
    Layer,
    Notice,
    Results,
    Rule,
    first_evidence,
    value,
)
from nccl_inspect.judging.process_ends import exceptions
from nccl_inspect.judging.statements import rank_prefix
from nccl_inspect.util.wording import listed

RULE = Rule(
    name="gloo-not-connected",
    category="bootstrap",
    layer=Layer.LOSS,
    title="Gloo, which connects processes alongside NCCL, found no interface or could not reach all processes",
)
_FAILED = ("torch/gloo-no-interface", "torch/gloo-connect-failed", "torch/gloo-not-connected")
_BARRIER = "torch/barrier-not-passed"
_CHOOSE = "GLOO_SOCKET_IFNAME=<interface>   # on all ranks: the full name; usually the same as NCCL_SOCKET_IFNAME"
_ADDRESSES = "ip -br addr   # on each host, inside the container: which interface do all share?"
_OWN_NAME = "getent hosts $(hostname)   # on each host: is it 127.0.1.1, as some installers write to /etc/hosts?"


def judge(facts: Facts) -> Results:
    """Judge Gloo's messages, the most specific first."""
    caught = [notice for notice in facts.notices(*_FAILED) if exceptions.is_caught(facts, notice)]
    yield Effects(caught)
    missing, refused, others = ([n for n in facts.notices(name) if n not in caught] for name in _FAILED)
    stated = facts.errors_of_rule(RULE.name)
    if facts.job.communicators:
        yield Effects(stated)  # Gloo connected once: it lost a process that ended or hangs for another reason
    else:
        others += stated
    notices = [*missing, *refused, *others]
    if not notices:
        if not facts.job.last_lines and (late := facts.notices(_BARRIER)):
            yield _late_ranks(late)
        return
    ranks = {rank for notice in notices if (rank := rank_prefix(notice)) is not None}
    # If communicators exist, the exception of an unknown process may have been caught.
    is_dead = not facts.job.communicators or bool(missing and (ranks or facts.job.ended_by))
    yield RULE.finding(
        _summary(missing, refused),
        cause="GLOO_SOCKET_IFNAME, or a setting of the framework that becomes it, names an interface that this host or "
        "container does not have; or it has no address"
        if missing
        else "without GLOO_SOCKET_IFNAME Gloo advertises the address that the local host name resolves to: across "
        "hosts this may be loopback (127.0.1.1 in /etc/hosts) or an interface that the others cannot reach. Otherwise "
        "a firewall, or a process that ended earlier",
        impact="the program ends before or alongside NCCL: PyTorch's process groups for the CPU use Gloo",
        fix=[_ADDRESSES, _CHOOSE] if missing else [_OWN_NAME, _ADDRESSES, _CHOOSE],
        confidence="certain" if missing and is_dead else "likely",
        ranks=ranks,
        evidence=first_evidence(notices),
        fatal=is_dead,
    )


def _late_ranks(late: list[Notice]) -> Finding:
    """A clue about a barrier of Gloo, in a log without a line of NCCL."""
    return RULE.clue(
        f"ranks did not reach a barrier of Gloo in time: {value(late[0], 'ranks')}",
        cause="they hang, are slower than the others, or have ended",
        impact="the program ends with the time-out of the barrier",
        fix=["Look at the output of these ranks for the last step.", "py-spy dump --pid <pid>   # where they wait"],
        confirm="Compare with the logs of the ranks that the line names.",
        confidence="possible",
        evidence=first_evidence(late),
    )


def _summary(missing: list[Notice], refused: list[Notice]) -> str:
    if missing:
        names = dict.fromkeys(str(value(notice, "interface")) for notice in missing)
        return f"Gloo finds no interface {listed(names)}"
    where = dict.fromkeys(f"{value(notice, 'address')}:{value(notice, 'port')}" for notice in refused)
    return "Gloo cannot connect processes to each other" + (f": no connection to {listed(where)}" if where else "")
