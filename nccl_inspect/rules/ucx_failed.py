"""UCX failed: in the HPC-X plugin, under MPI, NIXL or NVSHMEM."""

from nccl_inspect.judging import stated_errors
from nccl_inspect.judging.engine import Facts, Layer, Results, Rule
from nccl_inspect.judging.statements import find_text

RULE = Rule(
    name="ucx-failed",
    category="plugins",
    title="UCX failed: in the HPC-X plugin, under MPI, NIXL or NVSHMEM",
    shows=("no-ucx",),
    layer=Layer.CALL,
)

_COMPARE = (
    "ucx_info -v; ucx_info -d | grep -E 'Device|Transport'   # on all nodes: the same release, and all NICs?",
    "UCX_LOG_LEVEL=info   # on all ranks: UCX logs what fails",
)
_OF_PLUGIN = (
    "UCX, its release or its settings do not match this NIC or the other ranks, it reached an internal limit, or a "
    "peer "
    "is gone. NCCL_PLUGIN_P2P=ucx, uct or ucx_uct selected it: the plugin's own InfiniBand code is the default",
    ("NCCL_PLUGIN_P2P=ib   # the plugin's InfiniBand transport; or unset it",),
)
_OWN = (
    "see the message. UCX is used by MPI, NIXL, NVSHMEM or another library here, not by NCCL's own transports",
    ("UCX_NET_DEVICES=mlx5_0:1 UCX_TLS=rc,cuda_copy,cuda_ipc,sm,self   # a test: only what is known to work",),
)
_ANSWERS = {
    "ucx/ucx-not-available": (
        "UCX_TLS, UCX_NET_DEVICES or the program ask for what this UCX does not have: a misspelt name, a NIC that is "
        "not "
        "in the container, or a UCX without its CUDA modules (cuda_copy, cuda_ipc), which then takes GPU memory for "
        "memory of the host",
        (
            "ucx_info -v | grep -o 'with-cuda[^ ]*'; ls $(dirname $(realpath $(which ucx_info)))/../lib/ucx | grep "
            "cuda",
            "Install or load a UCX built with CUDA, and put its folder in front in LD_LIBRARY_PATH.",
            "unset UCX_TLS UCX_NET_DEVICES   # lets UCX choose among what is there",
        ),
    ),
    "ucx/ucx-no-way": (
        "the processes have no transport in common: other UCX_TLS or UCX_NET_DEVICES, other releases, or containers "
        "that "
        "share neither memory nor a network; the message says why each transport is left out",
        ("env | grep ^UCX_   # in all processes: the same settings?",),
    ),
    "ucx/ucx-ends": (
        "the peer did not answer, or is gone: a process that ended first, a link that is down, a path that does not "
        "exist between the NICs, or sides that are set up differently",
        (
            "Find the process that ended first: its peers see this error.",
            "ibstat; perfquery -x; ib_write_bw   # between the two hosts: are links up, and does RDMA work?",
        ),
    ),
}


def judge(facts: Facts) -> Results:
    """Judge errors about UCX calls; transfer-failed judges transfers of the plugin over it."""
    errors = facts.errors_of_rule(RULE.name)
    if not errors:
        return
    first = errors[0]
    over_ucx = any((kind.net or "").startswith("UCX") for kind in facts.paths(transport="NET").kinds)
    of_plugin = over_ucx or not (first.event and first.event.dialect == "ucx")
    cause, fix = _ANSWERS.get(first.production, _OF_PLUGIN if of_plugin else _OWN)
    yield stated_errors.finding(
        RULE,
        facts,
        errors,
        f"UCX failed: {find_text(first)}",
        cause=cause,
        stops="the connection cannot be made or used, and the job stops",
        fix=(*fix, *_COMPARE),
        confirm="Check which rank failed first: a dead peer looks the same.",
        confidence="likely" if facts.job.failed else "possible",
    )
