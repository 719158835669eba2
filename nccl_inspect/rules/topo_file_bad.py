"""The topology or graph file that NCCL has to read is missing or does not match the machine."""

from collections.abc import Iterator

from nccl_inspect.judging.engine import Facts, first_evidence
from nccl_inspect.judging.facts import evidence_of_settings
from nccl_inspect.judging.hardware.topology_faults import finished_init
from nccl_inspect.judging.page_words import Hit
from nccl_inspect.util.patterns import later

_DOUBTFUL = "doubtful-topology"
"""Role of errors about the file if one is read, otherwise about the detected topology. At INFO they are optional."""
_OF_FILES = later(r"of node cpu not found|^XML |^KV Convert")
"""Errors that only files cause: NCCL detects CPUs itself, and its own topology has no channels."""
_OF_GRAPHS = ("XML graph file", "XML Graph")


def find(facts: Facts) -> Iterator[Hit]:
    """Find NCCL's errors about these files: all but a missing topology file stop the rank.

    A graph file is valid for one set of GPUs only: it counts before the log shows that ranks came up with it.
    """
    unread, broken = facts.notices("nccl/topology-file-not-opened"), facts.with_role("file-refused")
    settings, finished = facts.settings("NCCL_TOPO_FILE", "NCCL_GRAPH_FILE"), finished_init(facts)
    doubtful = [notice for notice in facts.with_role(_DOUBTFUL) if notice.level != "INFO"]
    if not (settings or broken):  # without a file, the machine itself may have too many components
        doubtful = [notice for notice in doubtful if notice.production != "nccl/topology-too-large"]
    if errors := [*broken, *doubtful] or unread:
        named = {
            "graph": any(text in error.message for text in _OF_GRAPHS for error in errors),
            "set": settings,
            "unnamed": doubtful and not settings,
            "steps": [f"unset {setting.name}   # or correct it: {setting.value}" for setting in settings[:2]],
            "finished": finished,
            "certain": settings or unread,
            "of files": any(_DOUBTFUL not in one.roles or _OF_FILES.search(one.message) for one in errors),
        }
        yield Hit(errors, named, evidence=[*evidence_of_settings(settings, 1), *first_evidence(errors)])
    elif (graphs := facts.user_settings("NCCL_GRAPH_FILE")) and not finished and not facts.job.paths:
        yield Hit(settings=graphs, evidence=evidence_of_settings(graphs, 1))
