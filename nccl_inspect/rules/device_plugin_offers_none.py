"""A device plugin of Kubernetes offers no GPU or NIC, or fewer than before."""

from nccl_inspect.judging import stated_errors
from nccl_inspect.judging.engine import Facts, Results, Rule
from nccl_inspect.judging.statements import find_text

RULE = Rule(
    name="device-plugin-offers-none",
    category="environment",
    title="A device plugin of Kubernetes offers no GPU or NIC, or fewer than before",
    may_cause=("no-pod",),
    local=True,
)
_LOST = "kubernetes/plugin-device-lost"


def judge(facts: Facts) -> Results:
    """Judge what the plugins and the kubelet say."""
    errors = facts.errors_of_rule(RULE.name)
    if not errors:
        return
    lost = all(notice.production == _LOST for notice in errors)
    yield stated_errors.finding(
        RULE,
        facts,
        errors,
        f"a device plugin offers {'fewer' if lost else 'no'} devices: {find_text(errors[-1])}",
        cause="the driver reported an error of the GPU (an Xid), and the plugin took it out"
        if lost
        else "the plugin sees no device that fits its configuration: driver or RDMA modules are not loaded, the "
        "container runtime is not NVIDIA's, the selectors name other devices, or a virtual function is still in the "
        "network namespace of an old pod",
        stops="pods that request the device wait, or start without RDMA",
        fix=(
            "kubectl describe node <node> | grep -A12 Allocatable   # what does the node offer?",
            "dmesg -T | grep -iE 'xid|nvrm|mlx5'; nvidia-smi; rdma link; ls /dev/infiniband   # on the node",
            "kubectl -n <namespace> get configmap <of the plugin> -o yaml   # do its selectors fit vendor, device, "
            "name?",
            "kubectl -n <namespace> delete pod <of the plugin>   # after the repair: it looks for devices at its start",
        ),
        confirm="Compare with the number of devices of the node.",
    )
