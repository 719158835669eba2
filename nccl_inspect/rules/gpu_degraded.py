"""A GPU has fewer NVLinks or PCIe lanes than the others."""

from nccl_inspect.judging.engine import Facts, Layer, Notice, Results, Rule, value
from nccl_inspect.judging.hardware import fabric_health
from nccl_inspect.judging.statements import find_text
from nccl_inspect.util.wording import listed

RULE = Rule(
    name="gpu-degraded",
    category="topology",
    layer=Layer.HARDWARE,
    severity="warning",
    title="A GPU has fewer NVLinks or PCIe lanes than the others",
    local=True,
)


def judge(facts: Facts) -> Results:
    """Judge the GPUs of ranks by files from their hosts."""
    if stated := facts.errors_of_rule(RULE.name):
        yield RULE.clue(
            f"a monitor finds a GPU or its links degraded: {find_text(stated[0])}",
            cause="an NVLink or PCIe link that is down or has many errors, a GPU that is too hot, or memory that "
            "wears out",
            impact="jobs on this host are slower, or end with an error of CUDA",
            fix=[
                "nvidia-smi nvlink -s; nvidia-smi nvlink -e; nvidia-smi -q -d ECC,ROW_REMAPPER,PERFORMANCE   # on "
                "the host",
                "dcgmi diag -r 3   # without jobs on it; then reset the GPU, or replace it",
            ],
            confirm="Compare the time of the line with that of the job, and the speed of this host with that of "
            "others.",
            notices=stated,
            explains_errors=stated,
        )
    masks = facts.notices("nccl/mnnvl-fabric")
    if sick := [notice for notice in masks if fabric_health.is_degraded(_mask(notice))]:
        faults = dict.fromkeys(fault for notice in sick for fault in fabric_health.decode(_mask(notice)))
        yield RULE.clue(
            f"the NVLink fabric of a GPU is not well: {listed(faults)} (healthMask {value(sick[0], 'health')})",
            cause="NVLinks that are down or were trained badly, or a host that the fabric manager did not set up",
            impact="NVLink is slower, or cannot be used between hosts",
            fix=[
                "nvidia-smi -q | grep -A8 Fabric; nvidia-smi nvlink -s   # on the host",
                "journalctl -u nvidia-fabricmanager   # what it says of this GPU; then reset the GPU",
            ],
            confirm="Compare with the hosts whose mask differs.",
            notices=sick,
        )
    if facts.job.artifacts:
        from nccl_inspect.judging.evidence import settled  # most jobs are a log alone

        yield from settled.clues(facts, RULE)


def _mask(notice: Notice) -> int:
    return int(str(value(notice, "health")), 16)
