"""Hosts are connected by NVLink, but the service that shares memory between them does not work."""

from collections.abc import Iterator

from nccl_inspect.judging.engine import Facts, value
from nccl_inspect.judging.facts import evidence_of_settings, first_lines
from nccl_inspect.judging.hardware import cuda
from nccl_inspect.judging.impact import NVLINK, in_use
from nccl_inspect.judging.page_words import Hit

_NOT_PERMITTED = 800


def find(facts: Facts) -> Iterator[Hit]:
    """Find NCCL's own statement, CUDA's refusal to import on such machines, and NET between hosts of one domain."""
    stated = facts.notices("nccl/mnnvl-not-working", "rccl/rccl-mnnvl-not-working", "nccl/mnnvl-unsupported")
    domains = _domains(facts)
    calls = cuda.failed_calls(facts, "transport/p2p.cc") if domains or facts.notices("nccl/mnnvl-clique") else []
    failed = [*stated, *(call for call in calls if cuda.code_of(call) == _NOT_PERMITTED)]
    service = facts.errors_of_rule("mnnvl-imex-not-working")
    over_net = facts.paths("inter", "NET")
    slow = over_net.where(lambda kind: bool(domains) and not any(also.transport == "P2P" for also in kind.also))
    slow = slow.only(
        ("src_host", "dst_host"), lambda *joined: any(hosts.issuperset(joined) for hosts in domains.values())
    )
    machine = facts.platform
    on_rack = machine is not None and (machine.nvlink_domain or 0) > (machine.gpus or 0)
    if failed:
        asked = facts.user_settings("NCCL_MNNVL_ENABLE", "NCCL_MNNVL")
        yield Hit(failed, {"refused": not stated, "asked": asked})
    elif service:
        yield Hit(service, {"service": True})
    elif slow:
        off = [one for one in facts.settings("NCCL_MNNVL_ENABLE", "NCCL_CUMEM_ENABLE") if one.value == "0"]
        named = {"slow": True, "off": off, "net": in_use(slow, machine), "nvlink": NVLINK[5], "refused": True}
        yield Hit(named=named, evidence=[*first_lines(slow)[:3], *evidence_of_settings(off, 1)], paths=slow)
    elif machine and on_rack and over_net and not facts.notices("nccl/mnnvl-fabric"):
        yield Hit(named={"domain": machine.nvlink_domain, "pairs": len(over_net)})


def _domains(facts: Facts) -> dict[tuple[object, ...], set[str]]:
    """The hosts of each NVLink domain: fabric UUID and clique; a UUID of zeros means none."""
    domains: dict[tuple[object, ...], set[str]] = {}
    for notice in facts.notices("nccl/mnnvl-fabric"):
        uuid = value(notice, "uuid_high"), value(notice, "uuid_low")
        if any(str(half).strip("0") for half in uuid):
            domains.setdefault((*uuid, value(notice, "clique")), set()).update(notice.hosts)
    return domains
