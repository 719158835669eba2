"""A network plugin exists, but cannot be loaded."""

from nccl_inspect.judging.engine import Facts, Results, Rule
from nccl_inspect.judging.networks.fabrics import lacks_a_library, tcp_paths

RULE = Rule(
    name="plugin-load-failed",
    category="plugins",
    title="A network plugin exists, but cannot be loaded",
    may_cause=("mixed-networks", "no-efa", "no-ib"),
    supersedes=("plugin-does-not-fit",),
    nest_under_effect=True,
    local=True,
)


def judge(facts: Facts) -> Results:
    """Judge errors of the dynamic linker for network plugins; probes for symbols of older interfaces are not errors."""
    broken = [*facts.plugin("NET", "load-failed"), *filter(lacks_a_library, facts.plugin("NET", "not-found"))]
    if not broken or facts.plugin("NET", "loaded"):
        return
    slow = tcp_paths(facts)
    missed = bool(facts.with_role("no-network"))
    yield RULE.finding(
        f"the network plugin cannot be loaded: {getattr(broken[0].event, 'detail', None) or broken[0].message}",
        cause="the plugin does not match the image: a library it needs is missing or too old (GLIBC, libfabric, CUDA)",
        impact="hosts talk over TCP"
        if slow
        else "NCCL_NET requests a network that does not come up: the job stops"
        if missed
        else "NCCL continues without the plugin, or stops if NCCL_NET requests it",
        fix=[
            "ldd <path>/libnccl-net.so   # inside the container: which library is missing?",
            "Take NCCL, libfabric and the plugin from one installer or base image.",
        ],
        severity="error" if slow or missed else "warning" if facts.spans_hosts() else "info",
        notices=broken,
        ranks={rank for notice in broken for rank in notice.ranks},
        fatal=missed,
    )
