"""Reduction inside the NVSwitch could not be set up."""

from collections.abc import Iterator

from nccl_inspect.event_types import Notice as Said
from nccl_inspect.impact import WITHOUT_NVLS
from nccl_inspect.model.finding import Finding, NotJudged
from nccl_inspect.rules.cuda import code_of
from nccl_inspect.rules.cuda import failed as cuda_failed
from nccl_inspect.rules.engine import Rule
from nccl_inspect.rules.facts import Facts, first_said, hosts_in, ranks_in, ranks_word

RULE = Rule(
    name="nvls-fabric-manager",
    category="intra-node path",
    severity="error",
    title="Reduction inside the NVSwitch (NVLS) could not be set up: fabric manager or NVSwitch",
    because=("p2p-nvlink-fault",),
    specific=("fabric-manager-down",),
)
_BROKEN = (1, 101, 304, 400, 401, 800, 801, 999)
_NO_MEMORY = 2
_FIX = (
    "NCCL_NVLS_ENABLE=0   # on all ranks: goes on without it meanwhile",
    "nv-fabricmanager --version; nvidia-smi   # its version must be that of the driver",
    "dmesg -T | grep -iE 'xid|sxid'; nvidia-smi -q | grep -A4 Fabric   # NVL72 also: nvidia-imex-ctl -N",
    "Stop all jobs of the node before the next step: it resets its GPUs.",
    "systemctl stop nvidia-fabricmanager; nvidia-smi -r; systemctl start nvidia-fabricmanager   # never under load",
)


def judge(facts: Facts) -> Iterator[Finding | NotJudged]:
    """Judge failed multicast calls by their effect: 2.27 and 2.28 go on without NVLS, other releases stop."""
    fatal = [
        *(notice for notice in cuda_failed(facts, "transport/nvls.cc") if code_of(notice) in _BROKEN),
        *facts.notices("nvls-bind-failed"),
    ]
    given_up = facts.notices("nvls-bind-given-up")
    failed = [*fatal, *given_up]
    if not failed:
        return
    codes = {dict(notice.event.values).get("code") for notice in failed if isinstance(notice.event, Said)}
    alone = _others(facts, ranks_in(given_up)) if given_up and not fatal else set()
    yield RULE.finding(
        f"NVLink SHARP (NVLS) could not be set up: {failed[0].message.splitlines()[0]}",
        cause="GPU memory is used up, or the multicast state of the NVSwitches is broken"
        if codes == {_NO_MEMORY}
        else "the multicast state of the NVSwitches is broken, most often because the fabric manager was restarted "
        "under load, or is of another version than the driver",
        impact="the job stops"
        if fatal
        else f"{ranks_word(alone)} did not give it up: ranks that disagree wait for each other"
        if alone
        else f"collectives take rings instead: {WITHOUT_NVLS}",
        fix=_FIX,
        severity="error" if fatal or alone else "warning",
        confidence="likely",
        ranks=ranks_in(failed),
        hosts=hosts_in(failed),
        evidence=first_said(failed),
        fatal=bool(fatal),
    )


def _others(facts: Facts, ranks: set[int]) -> set[int]:
    """The other ranks of the hosts with these ranks, as far as their logs are here."""
    hosts = [set(host.ranks) for host in facts.job.hosts]
    return {rank for host in hosts if host & ranks for rank in host & set(facts.job.ranks_seen)} - ranks
