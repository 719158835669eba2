"""Send/recv between hosts with several NICs does not use PXN."""

from __future__ import annotations

import re
from collections.abc import Iterator

from nccl_inspect.judging.clouds import is_google_network
from nccl_inspect.judging.engine import Facts, first_evidence
from nccl_inspect.judging.facts import evidence_of_settings, first_lines, nics_used
from nccl_inspect.judging.networks.nic_use import crossing
from nccl_inspect.judging.page_words import Hit
from nccl_inspect.model.job import Selection

_FIRST = (2, 12)
"""The release that brought PXN."""


def find(facts: Facts) -> Iterator[Hit]:
    """Find hosts where PXN could help: several NICs and several ranks, with NVLink between them."""
    paths = facts.inter_host_rdma_paths()
    rich = {host for host, nics in nics_used(paths).items() if len(nics) > 1 and len(set().union(*nics.values())) > 1}
    paths = paths.only(("src_host",), rich.__contains__)
    off = [setting for setting in facts.user_settings("NCCL_PXN_DISABLE") if setting.value == "1"]
    off += [setting for setting in facts.user_settings("NCCL_P2P_PXN_LEVEL") if setting.value == "0"]
    off = [] if is_google_network(facts) else off
    old = facts.notices("nccl/pxn-disabled-by-plugin")
    slow = paths if paths and (off or old) else _stray(facts) if paths else paths
    if slow:
        shown = [*evidence_of_settings(off, 1), *first_evidence(old[:1]), *first_lines(slow)[:3]]
        yield Hit(named={"off": off, "old plugin": old}, evidence=shown, paths=slow)


def _stray(facts: Facts) -> Selection:
    """Send/recv paths that change rails although PXN would have kept them on one."""
    joined = any(facts.link(kind) == "NVLink" for kind in facts.paths(transport="P2P").kinds)
    uses_it = any(kind.pxn_rank is not None for kind in facts.inter_host_rdma_paths().kinds)
    if not joined or uses_it or not _has_pxn(facts):
        return facts.no_paths()
    return crossing(facts).where(lambda kind: any(link.send_recv and link.crosses_rails for link in kind.links))


def _has_pxn(facts: Facts) -> bool:
    """Whether the release is known to have it; an inferred range does not count."""
    matches = [re.fullmatch(r"(\d+)\.(\d+)\..*", version) for version in facts.job.nccl_versions]
    return bool(matches) and all(match is not None and (int(match[1]), int(match[2])) >= _FIRST for match in matches)
