"""GPUs connected by NVLink may not read each other's memory."""

from nccl_inspect.event.types import Notice
from nccl_inspect.judging.engine import Facts, Layer, Results, Rule
from nccl_inspect.judging.impact import SHM, estimate
from nccl_inspect.util.wording import listed

RULE = Rule(
    name="p2p-nvlink-fault",
    category="intra-node path",
    layer=Layer.HARDWARE,
    title="The driver refuses peer access between GPUs connected by NVLink: a hardware fault",
    may_cause=("no-nvls", "wrong-results"),
    local=True,
)


def judge(facts: Facts) -> Results:
    """Judge NCCL's own statement; it stops the job (src/graph/paths.cc)."""
    broken = facts.notices("nccl/p2p-disabled-nvlink")
    if not broken:
        return
    pairs = {
        tuple(sorted((notice.event.value("gpu"), notice.event.value("other_gpu"))))
        for notice in broken
        if isinstance(notice.event, Notice)
    }
    words = listed(f"GPUs {first} and {second}" for first, second in sorted(pairs))
    yield RULE.finding(
        f"NVLink connects {words}, but the driver refuses peer access between them",
        cause="a broken or degraded NVLink, NVSwitch or fabric manager: NCCL itself reports a probable hardware issue",
        impact=estimate(
            "NCCL stops; with NCCL_IGNORE_DISABLED_P2P=1 the pair would go through host memory, "
            f"{SHM} instead of hundreds",
            SHM,
        ),
        fix=[
            "kubectl drain <node> --ignore-daemonsets --delete-emptydir-data   # Slurm: scontrol update "
            "nodename=<node> state=drain reason=nvlink",
            "nvidia-smi nvlink -s; nvidia-smi nvlink -e; nvidia-smi topo -p2p n; dmesg -T | grep -iE 'xid|sxid'",
            "systemctl status nvidia-fabricmanager   # machines with NVSwitch; then reset the GPUs (nvidia-smi -r)",
        ],
        notices=broken,
        fatal=True,
    )
