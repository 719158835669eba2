"""Kubernetes did not start a pod, or ended it."""

from nccl_inspect.judging import stated_errors
from nccl_inspect.judging.engine import Facts, Results, Rule, value

RULE = Rule(
    name="pod-not-started",
    category="environment",
    title="Kubernetes did not start a pod, or ended it",
    shows=("no-pod",),
)
_NO_NODE = "kubernetes/pod-not-scheduled"


def judge(facts: Facts) -> Results:
    """Judge the events of scheduler and kubelet."""
    errors = facts.errors_of_rule(RULE.name)
    if not errors:
        return
    first = errors[0]
    waits = first.production == _NO_NODE
    yield stated_errors.finding(
        RULE,
        facts,
        errors,
        f"no node can take the pod: {value(first, 'reason')}"
        if waits
        else f"Kubernetes did not start the pod, or ended it: {value(first, 'reason')}",
        cause="what the pod requests is in use on all nodes, or no device plugin offers it under that name"
        if waits
        else "see the message: a volume or device of the node that is missing, a container that ends again and again, "
        "a runtime that refuses, or a node that ran out of something",
        stops="the rank in this pod does not run, and the others wait for it",
        fix=(
            "kubectl describe nodes | grep -A12 -E 'Allocatable|Allocated'   # what is offered, and what is in use?"
            if waits
            else "kubectl logs <pod> --previous; kubectl describe pod <pod>   # what did the container say last?",
            "kubectl get pods -A --field-selector spec.nodeName=<node>   # who uses the devices?",
            "Compare the names of the requested resources with those that the nodes offer.",
        ),
        confirm="kubectl describe pod <pod>: does the event recur?",
    )
