"""An old release cannot do without the place of a GPU in the PCI tree of /sys."""

from nccl_inspect.judging import propagated_errors
from nccl_inspect.judging.engine import Facts, Layer, Results, Rule, first_evidence
from nccl_inspect.judging.facts import hosts_in

RULE = Rule(
    name="pci-path-not-found",
    category="environment",
    layer=Layer.RESOURCE,
    title="The place of a GPU in /sys cannot be read, and this release needs it",
    local=True,
)
_SYSTEM_ERROR = 2
_READS_PLACE = ("graph/xml.cc", "graph/topo.cc")


def judge(facts: Facts) -> Results:
    """Judge the warning where the call failed that reads the place: since 2.10, NCCL continues without it."""
    failed = propagated_errors.frames(facts, _SYSTEM_ERROR, _READS_PLACE)
    hosts = hosts_in(failed)
    notices = [one for one in facts.notices("nccl/speed-path-unreadable") if not one.hosts or hosts & set(one.hosts)]
    if not failed or not notices:
        return
    yield RULE.finding(
        f"NCCL did not find a GPU in /sys: {notices[0].message}",
        cause="virtual machines, WSL 2 and some containers show GPUs without their PCI devices, and NCCL before 2.10 "
        "ends if it cannot read where a GPU is",
        impact="initialization fails, and the job does not start",
        fix=[
            "pip install -U nvidia-nccl-cu12   # 2.10 or later, which continues without the place; or a newer image",
            "nvidia-smi --query-gpu=pci.bus_id --format=csv; ls /sys/class/pci_bus   # is it there?",
            "--volume=/sys:/sys:ro   # option of docker run, if the host has the device and the container lacks it",
        ],
        notices=notices,
        evidence=first_evidence([*notices[:2], *failed[:1]]),
        severity="info",
        confidence="certain",
    )
