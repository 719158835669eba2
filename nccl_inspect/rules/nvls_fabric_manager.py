"""Reduction inside the NVSwitch could not be set up."""

from __future__ import annotations

from collections.abc import Iterator

from nccl_inspect.judging.engine import Facts, Finding, Notice, Results, Rule, value
from nccl_inspect.judging.facts import ranks_in
from nccl_inspect.judging.hardware import cuda
from nccl_inspect.judging.hardware.peer_to_peer import is_of_fabric
from nccl_inspect.judging.impact import WITHOUT_NVLS
from nccl_inspect.judging.process_ends.silence import is_last
from nccl_inspect.util.records import Frozen, frozen
from nccl_inspect.util.wording import ranks_word

RULE = Rule(
    name="nvls-fabric-manager",
    category="intra-node path",
    title="Reduction inside the NVSwitch (NVLS) could not be set up: fabric manager or NVSwitch",
    shows=("no-nvls",),
    supersedes=("nvls-unavailable",),
    local=True,
)
_NO_MEMORY = 2
_FIX = (
    "NCCL_NVLS_ENABLE=0   # on all ranks: a workaround that continues without it",
    "nv-fabricmanager --version; nvidia-smi   # its version must match the driver",
    "dmesg -T | grep -iE 'xid|sxid'; nvidia-smi -q | grep -A4 Fabric   # NVL72 also: nvidia-imex-ctl -N",
    "systemctl stop nvidia-fabricmanager; nvidia-smi -r; systemctl start nvidia-fabricmanager   # resets the GPUs: "
    "stop all jobs of the node first",
)


@frozen
class _Failure(Frozen):
    """Multicast calls that failed."""

    broken: list[Notice]
    """CUDA's calls, and binding memory."""
    faults: list[Notice]
    """Addresses that do not fit."""
    given_up: list[Notice]
    """Ranks that continue without NVLS."""

    @property
    def notices(self) -> list[Notice]:
        """All of them."""
        return [*self.broken, *self.faults, *self.given_up]

    @property
    def is_fatal(self) -> bool:
        """Whether NCCL does not continue."""
        return bool(self.broken or self.faults)


def judge(facts: Facts) -> Results:
    """Judge failed multicast calls by their effect: 2.27 and 2.28 continue without NVLS, other releases stop."""
    calls = [failure.notice for failure in cuda.failures(facts) if is_of_fabric(failure)]
    failure = _Failure(
        [*calls, *facts.notices("nccl/nvls-bind-failed")],
        facts.notices("nccl/multicast-fault"),
        facts.notices("nccl/nvls-bind-given-up"),
    )
    yield from [_finding(facts, failure)] if failure.notices else _stuck(facts)


def _finding(facts: Facts, failure: _Failure) -> Finding:
    alone = set() if failure.is_fatal else _others(facts, ranks_in(failure.given_up))
    return RULE.finding(
        f"NVLink SHARP (NVLS) could not be set up: {failure.notices[0].message.splitlines()[0]}",
        cause=_cause(failure),
        impact="the job stops"
        if failure.is_fatal
        else f"{ranks_word(alone)} did not disable it: ranks that disagree wait for each other"
        if alone
        else WITHOUT_NVLS.after("collectives use rings instead: "),
        fix=_FIX,
        severity="error" if failure.is_fatal or alone else "warning",
        confidence="likely",
        notices=failure.notices,
        fatal=failure.is_fatal,
    )


def _cause(failure: _Failure) -> str:
    if failure.faults and not failure.broken:
        return (
            "the ranks disagree about where buffers are: some have another release or other settings, or this release "
            "has a bug"
        )
    if {value(notice, "code") for notice in failure.notices} == {_NO_MEMORY}:
        return "GPU memory is used up, or the multicast state of the NVSwitches is broken"
    return (
        "the multicast state of the NVSwitches is broken, usually because the fabric manager was restarted under load "
        "or does not match the driver"
    )


def _stuck(facts: Facts) -> Iterator[Finding]:
    """A log that ends where memory is bound to the multicast group, which waits for all ranks (transport/nvls.cc)."""
    bound = facts.notices("nccl/nvls-bind")
    last = [notice for notice in bound if any(is_last(facts, line) for line in notice.evidence)]
    if not last or facts.job.going_on or facts.job.failed or facts.errors(forced_ends=False):
        return
    yield RULE.clue(
        "the log ends while NVLink SHARP (NVLS) binds memory to its multicast group",
        cause="that call returns once all ranks of the host have joined the group. It hangs where the multicast state "
        "of the NVSwitches is broken, usually because the fabric manager was restarted under load or does not match "
        "the driver, or where a rank never joins",
        impact="if it hangs, initialization never ends",
        fix=_FIX,
        confirm="Check whether the log continues. If not, run with NCCL_NVLS_ENABLE=0: if that works, multicast is "
        "at fault.",
        confidence="likely" if facts.job.ended_by else "possible",
        notices=last,
    )


def _others(facts: Facts, ranks: set[int]) -> set[int]:
    """The other ranks of the hosts with these ranks, as far as their logs are here."""
    hosts = [set(host.ranks) for host in facts.job.hosts]
    return {rank for host in hosts if host & ranks for rank in host & set(facts.job.ranks_seen)} - ranks
