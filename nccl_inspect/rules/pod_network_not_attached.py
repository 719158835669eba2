"""A network of a pod could not be attached, and the pod does not start."""

from nccl_inspect.judging import stated_errors
from nccl_inspect.judging.engine import Facts, Results, Rule
from nccl_inspect.judging.statements import error_of

RULE = Rule(
    name="pod-network-not-attached",
    category="environment",
    title="A network of the pod could not be attached: the pod does not start",
    supersedes=("pod-not-started",),
    local=True,
)
_NO_ADDRESS = ("Could not allocate IP", "no IP addresses available", "IPAM")


def judge(facts: Facts) -> Results:
    """Judge the events of the kubelet about the sandbox of a pod."""
    errors = facts.errors_of_rule(RULE.name)
    if not errors:
        return
    used_up = any(text in error_of(notice) for notice in errors for text in _NO_ADDRESS)
    yield stated_errors.finding(
        RULE,
        facts,
        errors,
        "a network of the pod could not be attached" + (": no free address" if used_up else ""),
        cause="the pool of addresses (whereabouts, host-local) is used up, most often by pods that are gone: their "
        "addresses were not given back"
        if used_up
        else "the network plugin refused: the name of the network attachment, its device pool, or a virtual function "
        "that is not there; the last words of the message say why",
        stops="the pod stays in ContainerCreating, and the job waits for it",
        fix=(
            "kubectl get net-attach-def -A; kubectl describe net-attach-def <name>   # does it exist, in this "
            "namespace?",
            "kubectl get ippools,overlappingrangeipreservations -A   # whereabouts: addresses of pods that are gone?",
            "kubectl describe node <node> | grep -A12 Allocatable   # are virtual functions left?",
            "Enlarge the range of addresses, or delete stale reservations; then delete the pod.",
        ),
        confirm="kubectl describe pod <pod>: does the event recur?",
    )
