"""Send/recv between hosts with several NICs does not use PXN."""

from __future__ import annotations

import re

from nccl_inspect.judging.clouds import is_google_network
from nccl_inspect.judging.engine import Facts, Finding, Notice, Results, Rule, first_evidence
from nccl_inspect.judging.facts import as_shell, evidence_of_settings, first_lines, nics_used, unset_steps
from nccl_inspect.judging.networks.nic_use import crossing
from nccl_inspect.model.job import Selection, Setting
from nccl_inspect.util.records import Frozen, frozen
from nccl_inspect.util.wording import count

RULE = Rule(
    name="pxn-unused",
    category="topology",
    severity="info",
    title="PXN is off: GPUs do not use the NICs of their neighbors",
    may_cause=("cross-rail",),
)
_FIRST = (2, 12)
"""The release that brought PXN."""


@frozen
class _Without(Frozen):
    """Paths without PXN, and the reason as far as the log shows it."""

    paths: Selection
    off: list[Setting]
    old_plugin: list[Notice]
    """The plugin's version 4 of the interface has no PXN."""

    @property
    def is_explained(self) -> bool:
        """Whether the log shows the reason."""
        return bool(self.off or self.old_plugin)


def judge(facts: Facts) -> Results:
    """Judge hosts where PXN could help: several NICs and several ranks, with NVLink between them."""
    if not (paths := _several_nics(facts)):
        return
    off = [s for s in facts.user_settings("NCCL_PXN_DISABLE") if s.value == "1"]
    off += [s for s in facts.user_settings("NCCL_P2P_PXN_LEVEL") if s.value == "0"]
    off = [] if is_google_network(facts) else off
    without = _Without(paths, off, facts.notices("nccl/pxn-disabled-by-plugin"))
    if without.is_explained:
        yield _finding(without)
    elif stray := _stray(facts):
        yield _finding(without.with_fields(paths=stray))


def _several_nics(facts: Facts) -> Selection:
    """Network paths of hosts where several ranks use several NICs."""
    paths = facts.inter_host_rdma_paths()
    rich = {host for host, nics in nics_used(paths).items() if len(nics) > 1 and len(set().union(*nics.values())) > 1}
    return paths.only(("src_host",), rich.__contains__)


def _stray(facts: Facts) -> Selection | None:
    """Send/recv paths that change rails although PXN would have kept them on one."""
    joined = any(facts.link(kind) == "NVLink" for kind in facts.paths(transport="P2P").kinds)
    if (
        not joined
        or not _has_pxn(facts)
        or any(kind.pxn_rank is not None for kind in facts.inter_host_rdma_paths().kinds)
    ):
        return None
    return crossing(facts).where(lambda kind: any(link.send_recv and link.crosses_rails for link in kind.links))


def _has_pxn(facts: Facts) -> bool:
    """Whether the release is known to have it; an inferred range does not count."""
    matches = [re.fullmatch(r"(\d+)\.(\d+)\..*", version) for version in facts.job.nccl_versions]
    return bool(matches) and all(match is not None and (int(match[1]), int(match[2])) >= _FIRST for match in matches)


def _finding(without: _Without) -> Finding:
    return RULE.finding(
        _summary(without),
        cause=_cause(without),
        impact="small messages to many peers (all-to-all, expert parallelism) are not aggregated on one NIC and may "
        "change rails; rings and trees are not affected",
        fix=[
            *unset_steps(without.off),
            *(["Install a current version of the network plugin in the image."] if without.old_plugin else []),
            "Measure with and without PXN: alltoall_perf of nccl-tests.",
        ],
        confidence="certain" if without.is_explained else "possible",
        evidence=[
            *evidence_of_settings(without.off, 1),
            *first_evidence(without.old_plugin[:1]),
            *first_lines(without.paths)[:3],
        ],
        paths=without.paths,
    )


def _summary(without: _Without) -> str:
    paths = f"{count(len(without.paths), 'network path')} of hosts with several NICs"
    if without.off:
        return f"{as_shell(without.off)}: no PXN for {paths}"
    if without.old_plugin:
        return f"the network plugin is too old for PXN; {paths}"
    return f"{count(len(without.paths), 'send/recv path')} between hosts change rails, and none uses PXN"


def _cause(without: _Without) -> str:
    if without.off:
        return f"{as_shell(without.off)} is set"
    if without.old_plugin:
        return "the network plugin implements version 4 of NCCL's interface; PXN needs a later one"
    return (
        "unknown from this log: PXN needs NVLink between the GPU and the neighbor next to the NIC, and a NIC that can "
        "access the neighbor's memory"
    )
