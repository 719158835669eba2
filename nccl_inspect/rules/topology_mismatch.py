"""The ranks do not agree on the topology, or NCCL found no order for it."""

from collections.abc import Iterator

from nccl_inspect.judging.engine import Facts, Notice, first_evidence, value
from nccl_inspect.judging.facts import evidence_of_settings
from nccl_inspect.judging.hardware.topology_faults import fault_of, finished_init
from nccl_inspect.judging.page_words import Hit

_RING_AND_TREES = range(1, 5)
"""Numbers of the patterns that every job needs; higher numbers are NVLS and CollNet."""
_OLD = "nccl/ring-search-old"
_OLD_ENDS = ("Could not find transport", "links mismatch", "Recursive P2P", "CUDA device")
_OLD_COSTS = ("falling back on simple ring", "Disabling other rings", "found in group")
"""Up to 2.4: messages that return an error, and those that lead to a slow order; others only limit numbers."""


def find(facts: Facts) -> Iterator[Hit]:
    """Find faults that stop the job, first rings that do not close, and searches that found nothing."""
    broken = [*facts.with_role("rings-broken"), *_old(facts, _OLD_ENDS)]
    faults = [notice for notice in facts.errors_of_rule("topology-mismatch") if notice.production != _OLD]
    without = [one for one in facts.notices("nccl/topology-no-path") if value(one, "pattern") in _RING_AND_TREES]
    files = facts.settings("NCCL_TOPO_FILE", "NCCL_GRAPH_FILE")
    if errors := [*broken, *faults]:
        fault = None if broken else fault_of(faults[0])
        unset = [f"unset {setting.name}   # as a test: {setting.value}" for setting in files[:2]]
        named = {
            "broken": broken,
            "files": files,
            "finished": finished_init(facts),
            "what": fault and fault.what,
            "why": fault and fault.cause,
            "steps": [*unset, *(fault.fix if fault else ())],
        }
        yield Hit(errors, named, evidence=[*first_evidence(errors), *evidence_of_settings(files, 1)])
    elif simple := [*without, *_old(facts, _OLD_COSTS)]:
        yield Hit(simple, {"simple": True, "steps": []})


def _old(facts: Facts, parts: tuple[str, ...]) -> list[Notice]:
    return [notice for notice in facts.notices(_OLD) if any(part in notice.message for part in parts)]
