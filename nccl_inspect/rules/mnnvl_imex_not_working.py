"""Hosts are connected by NVLink, but the service that shares memory between them does not work."""

from collections.abc import Sequence

from nccl_inspect.event.types import Notice as NoticeEvent
from nccl_inspect.judging import stated_errors
from nccl_inspect.judging.engine import Facts, Finding, Needs, Notice, Results, Rule
from nccl_inspect.judging.facts import as_shell, evidence_of_settings, first_lines, unset_steps
from nccl_inspect.judging.hardware.cuda import code_of
from nccl_inspect.judging.hardware.cuda import failed_calls as cuda_failed
from nccl_inspect.judging.impact import NVLINK, estimate, in_use
from nccl_inspect.judging.statements import find_text
from nccl_inspect.model.job import Path, Selection
from nccl_inspect.util.wording import count, does

RULE = Rule(
    name="mnnvl-imex-not-working",
    category="intra-node path",
    title="Hosts are connected by NVLink (MNNVL), but ranks cannot use it: IMEX",
    supersedes=("p2p-import-failed",),
)
_NOT_PERMITTED = 800
_FORCED = ("nccl/mnnvl-unsupported",)
"""A setting requests it, but the hosts are not known to be connected by NVLink."""
_ON_AMD = "rccl/rccl-mnnvl-not-working"
_FIX_AMD = (
    "Check AMD's fabric manager on each node: every accelerator of the pod must be ACTIVE.",
    "RCCL_USE_AMD_SMI_LIB=1   # RCCL then reads the state of the fabric through AMD SMI",
    "NCCL_MNNVL_ENABLE=0   # continues over the network",
)
_FIX = (
    "nvidia-imex-ctl -N   # every node of the domain must be READY; systemctl status nvidia-imex on each",
    "ls /dev/nvidia-caps-imex-channels   # inside the container: the channel device must exist",
    "Kubernetes needs NVIDIA's DRA driver, a ComputeDomain for the job and its resource claim in each pod.",
    "NCCL_MNNVL_ENABLE=0   # continues over the network (2.20: NCCL_MNNVL=0)",
)


def judge(facts: Facts) -> Results:
    """Judge NCCL's own statement, CUDA's refusal to import on such machines, and NET between hosts of one domain."""
    stated = facts.notices("nccl/mnnvl-not-working", _ON_AMD, *_FORCED)
    failed = list(stated)
    if _domains(facts) or facts.notices("nccl/mnnvl-clique"):
        refused = cuda_failed(facts, "transport/p2p.cc")
        failed += [notice for notice in refused if code_of(notice) == _NOT_PERMITTED]
    service = facts.errors_of_rule(RULE.name)
    if service and not failed:
        yield stated_errors.finding(
            RULE,
            facts,
            service,
            f"memory cannot be shared between hosts: {find_text(service[0])}",
            cause="the IMEX service of a node is down, does not know the others or itself, or has another release; or "
            "Kubernetes did not give the pod its IMEX channel (ComputeDomain)",
            stops="multi-node NVLink does not work: the job does not start, or uses the network",
            fix=(*_FIX, "kubectl get computedomains,pods -A -o wide | grep -i imex   # is every daemon READY?"),
            confirm=_FIX[0],
        )
    elif failed and failed[0].production == _ON_AMD:
        yield RULE.finding(
            f"a fabric between hosts (UALoE) is available but does not work: {failed[0].message}",
            cause="AMD's fabric manager is not up on a node, or the container cannot share memory through the fabric",
            impact="the job stops",
            fix=_FIX_AMD,
            confidence="certain",
            notices=failed,
            fatal=True,
        )
    elif failed:
        is_forced = failed[0].production in _FORCED
        yield RULE.finding(
            f"multi-node NVLink is {'requested' if is_forced else 'available'} but does not work: {failed[0].message}",
            cause=f"{_forced(facts)} requests it, but this machine does not offer it: it is not a GB200 or GB300 rack, "
            "or its fabric or IMEX is not up"
            if is_forced
            else "the IMEX service of a node is down or does not know the others, or the container lacks the IMEX "
            "channel",
            impact="the job stops",
            fix=_FIX,
            confidence="certain" if stated else "likely",
            notices=failed,
            fatal=True,
        )
    elif slow := _over_net(facts):
        yield _unused(facts, slow)
    elif open_ones := _in_unknown_domains(facts):
        size = facts.platform.nvlink_domain if facts.platform else None
        yield RULE.undecided(
            f"{count(len(open_ones), 'pair')} of ranks on two hosts {does(len(open_ones), 'use')} the network; NVLink "
            f"connects {size} GPUs of a rack on such machines, but whether these hosts share a rack is not in the log",
            Needs(
                "the logs of all ranks from their beginning: the lines 'MNNVL busId … fabric UUID … cliqueId' (2.20)",
                all_ranks=True,
            ),
        )


def _forced(facts: Facts) -> str:
    return (
        as_shell(facts.user_settings("NCCL_MNNVL_ENABLE", "NCCL_MNNVL")) or "NCCL_MNNVL_ENABLE=1 (2.20: NCCL_MNNVL=1)"
    )


def _unused(facts: Facts, slow: Selection) -> Finding:
    off = [setting for setting in facts.settings("NCCL_MNNVL_ENABLE", "NCCL_CUMEM_ENABLE") if setting.value == "0"]
    net = in_use(slow, facts.platform)
    rate = f"the network in use gives {net}, " if net else ""
    return RULE.finding(
        f"{count(len(slow), 'pair')} of hosts in one NVLink domain {does(len(slow), 'use')} the network",
        cause=f"{as_shell(off)} disables multi-node NVLink"
        if off
        else "unknown from this log; likely: IMEX does not work, or this release does not use it (2.20 and later do)",
        impact=estimate(f"{rate}NVLink of such racks gives {NVLINK[5]}", *([net] if net else []), NVLINK[5]),
        fix=[*unset_steps(off), *_FIX[:3]],
        confidence="certain" if off else "likely",
        evidence=[*first_lines(slow)[:3], *evidence_of_settings(off, 1)],
        paths=slow,
    )


def _in_unknown_domains(facts: Facts) -> Sequence[Path]:
    """Network paths between hosts of a type that NVLink connects, where NCCL does not name the domain of a host."""
    machine = facts.platform
    if machine is None or (machine.nvlink_domain or 0) <= (machine.gpus or 0) or facts.notices("nccl/mnnvl-fabric"):
        return []
    return facts.paths("inter", "NET")


def _domains(facts: Facts) -> dict[tuple[object, ...], set[str]]:
    """The hosts of each NVLink domain: fabric UUID and clique; a UUID of zeros means none."""
    domains: dict[tuple[object, ...], set[str]] = {}
    for notice in facts.notices("nccl/mnnvl-fabric"):
        uuid, clique = _fabric(notice)
        if any(str(half).strip("0") for half in uuid):
            domains.setdefault((*uuid, clique), set()).update(notice.hosts)
    return domains


def _fabric(notice: Notice) -> tuple[tuple[object, object], object]:
    assert isinstance(notice.event, NoticeEvent)
    value = notice.event.value
    return (value("uuid_high"), value("uuid_low")), value("clique")


def _over_net(facts: Facts) -> Selection:
    domains = _domains(facts).values()
    over_net = facts.paths("inter", "NET").where(lambda _: domains)
    alone = over_net.where(lambda kind: not any(also.transport == "P2P" for also in kind.also))
    return alone.only(("src_host", "dst_host"), lambda *joined: any(hosts.issuperset(joined) for hosts in domains))
