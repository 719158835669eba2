"""A GPU has fewer NVLinks or PCIe lanes than the others."""

from nccl_inspect.judging.engine import Facts, Layer, Notice, Results, Rule, value
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

_FABRIC = "nccl/mnnvl-fabric"
"""Its health mask: ctrl2080gpu.h of NVIDIA/open-gpu-kernel-modules. NCCL warns of degraded bandwidth since 2.32."""
_TRUE = 1
_STATES = {
    0: "bandwidth is degraded",
    2: "routes are being updated",
    4: "a connection is unhealthy",
    6: "accesses timed out",
}
"""The lowest of two bits each: 1 is yes, 2 no, 0 not supported."""
_CONFIGURATION = 8
"""The lowest of four bits."""
_WRONG = {
    2: "the system GUID is wrong",
    3: "the serial number of the chassis is wrong",
    4: "it is in no partition",
    5: "it has too few NVLinks",
    6: "its firmware does not fit",
    7: "its location is invalid",
    8: "its state is invalid",
}


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
    masks = facts.notices(_FABRIC)
    if sick := [notice for notice in masks if _mask(notice) & 3 == _TRUE]:
        faults = dict.fromkeys(fault for notice in sick for fault in decode_health(_mask(notice)))
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
    mask = str(value(notice, "health"))
    return int(mask, 16) if mask.startswith("0x") else 0


def decode_health(mask: int) -> list[str]:
    """Return what a health mask says is wrong; nothing where all is well, or not reported."""
    faults = [words for shift, words in _STATES.items() if mask >> shift & 3 == _TRUE]
    configuration = mask >> _CONFIGURATION & 15
    return [*faults, _WRONG[configuration]] if configuration in _WRONG else faults
