"""A network plugin is there and cannot be loaded."""

import re
from collections.abc import Iterator

from nccl_inspect.judging.engine import Rule
from nccl_inspect.judging.facts import Facts
from nccl_inspect.model.finding import Finding, NotJudged
from nccl_inspect.model.job import Notice
from nccl_inspect.rules.socket_instead_of_rdma import tcp_paths

RULE = Rule(
    name="plugin-load-failed",
    category="plugins",
    severity="error",
    title="A network plugin is there and cannot be loaded",
    folds=True,
    local=True,
)
_A_PLUGIN = re.compile(r"ccl|plugin")
"""What stands in the file name of a plugin, and of no library that one needs."""


def judge(facts: Facts) -> Iterator[Finding | NotJudged]:
    """Judge errors of the dynamic linker for network plugins; symbols of older interfaces are probes, not errors."""
    broken = [*facts.plugin("NET", "load-failed"), *filter(lacks_a_library, facts.plugin("NET", "not-found"))]
    if not broken or facts.plugin("NET", "loaded"):
        return
    slow = tcp_paths(facts)
    missed = bool(facts.notices("net-not-found", "net-init-failed"))
    yield RULE.finding(
        f"the network plugin cannot be loaded: {getattr(broken[0].event, 'detail', None) or broken[0].message}",
        cause="the plugin does not fit the image: a library it needs is missing or too old (GLIBC, libfabric, CUDA)",
        impact="hosts talk over TCP"
        if slow
        else "NCCL_NET asks for a network, and none comes up: the job stops"
        if missed
        else "NCCL goes on without the plugin, or stops where NCCL_NET asks for it",
        fix=[
            "ldd <path>/libnccl-net.so   # inside the container: shows the missing library",
            "Take NCCL, libfabric and the plugin from one installer or base image.",
        ],
        severity="error" if slow or missed else "warning" if facts.several_hosts() else "info",
        ranks={rank for notice in broken for rank in notice.ranks},
        hosts={host for notice in broken for host in notice.hosts},
        evidence=[notice.evidence[0] for notice in broken],
        fatal=missed,
    )


def lacks_a_library(notice: Notice) -> bool:
    """Whether another file than the plugin is what was not found: until 2.21 NCCL words both alike.

    Up to 2.11, and in 2.19 and 2.20, it does not name the plugin.
    """
    plugin, missing = getattr(notice.event, "plugin", None), getattr(notice.event, "detail", None)
    if not missing:
        return False
    return missing not in str(plugin).split() if plugin else _A_PLUGIN.search(str(missing)) is None
