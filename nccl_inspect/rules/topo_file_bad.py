"""The topology or graph file that NCCL was told to read is missing or does not fit."""

import re
from collections.abc import Iterator

from nccl_inspect.judging.engine import Rule
from nccl_inspect.judging.facts import Facts, first_said, lines_of, unset, words_of
from nccl_inspect.judging.hardware.topology_faults import went_on
from nccl_inspect.model.finding import Finding, NotJudged
from nccl_inspect.model.job import Notice

RULE = Rule(
    name="topo-file-bad",
    category="environment",
    severity="error",
    title="The topology or graph file cannot be read or does not fit",
    causes=("few-channels", "ring-crosses-nodes-too-often", "rings-disagree", "topology-mismatch"),
    local=True,
)
_NAMES = ("NCCL_TOPO_FILE", "NCCL_GRAPH_FILE")
_DOUBTFUL = "doubtful-topology"
"""What is about the file where one is read, and else about what NCCL detected itself. At INFO it asks for what it may
do without."""
_OF_FILES = re.compile(r"of node cpu not found|^XML |^KV Convert")
"""NCCL fills in its CPUs itself, and its own topology has no channels: these come from files."""
_UNNAMED = (
    ". The log names no such file: plugins set one by themselves (AWS), images and /etc/nccl.conf may; without one it "
    "is what this machine, mostly a virtual one, shows of itself"
)


def judge(facts: Facts) -> Iterator[Finding | NotJudged]:
    """Judge what NCCL's reader of these files complains about: all but a missing topology file stops the rank."""
    unread = facts.notices("nccl/topology-file-not-opened")
    broken = facts.with_role("file-refused")
    settings = facts.settings(*_NAMES)
    doubtful = [notice for notice in facts.with_role(_DOUBTFUL) if notice.level != "INFO"]
    if not (settings or broken):  # without a file the machine itself may have too many parts
        doubtful = [notice for notice in doubtful if notice.production != "nccl/topology-too-large"]
    broken += doubtful
    said = broken or unread
    if not said:
        yield from _of_another_machine(facts)
        return
    dead = bool(broken) and not went_on(facts)
    named = f" ({words_of(settings)})" if settings else ""
    yield RULE.finding(
        f"NCCL cannot use the {_kind(said)} file{named}: {said[0].message}",
        cause=_cause(said) + (_UNNAMED if doubtful and not settings else ""),
        impact="the rank fails in the initialisation, and with it the job"
        if dead
        else "none in this log: the ranks came up with it"
        if broken
        else "NCCL detects the topology itself. In a virtual machine it may then not see which NIC is near which GPU, "
        "and use fewer channels or no GPUDirect RDMA",
        fix=[
            *(f"unset {setting.name}   # or correct it: {setting.value}" for setting in settings[:2]),
            "grep -E 'TOPO_FILE|GRAPH_FILE' /etc/nccl.conf ~/.nccl.conf; env | grep NCCL_   # inside the container",
            "NCCL_TOPO_DUMP_FILE=/tmp/topo.xml NCCL_GRAPH_DUMP_FILE=/tmp/graph.xml   # NCCL writes what it "
            "detects: compare",
            "Take plugin and file from one installer, the newest; a file made for another machine type, or for all "
            "GPUs where the job has some, does not fit.",
        ],
        severity="error" if dead else "info" if broken else "warning",
        confidence=_confidence(said, certain=bool(settings or unread)),
        notices=said,
        evidence=[*lines_of(settings, 1), *first_said(said)],
        fatal=dead,
    )


def _confidence(said: list[Notice], *, certain: bool) -> str:
    if certain:
        return "certain"
    of_files = any(_DOUBTFUL not in one.roles or _OF_FILES.search(one.message) for one in said)
    return "likely" if of_files else "possible"


def _kind(said: list[Notice]) -> str:
    texts = " ".join(notice.message for notice in said)
    return "graph" if "XML graph file" in texts or "XML Graph" in texts else "topology"


def _cause(said: list[Notice]) -> str:
    first = said[0].production
    if first in ("nccl/topology-file-not-opened", "nccl/graph-file-missing"):
        return "the file is not there or cannot be read: not in the image, not mounted, or a left-over setting"
    if first == "nccl/topology-file-version":
        return "the file was made for another NCCL release"
    return "the file is damaged, or made for another machine type or NCCL release"


def _of_another_machine(facts: Facts) -> Iterator[Finding]:
    """Judge a graph file before the log shows that ranks came up with it: it holds for one set of GPUs only."""
    named = facts.chosen("NCCL_GRAPH_FILE")
    if not named or went_on(facts) or facts.job.paths:
        return
    yield RULE.clue(
        f"{words_of(named)} fixes the rings and trees of one machine",
        cause="NCCL takes them from the file instead of searching: it fits only the GPUs and NICs that it was written "
        "for, all of them. Images of cloud machines set it in /etc/nccl.conf",
        impact="where it does not fit, the initialisation fails, or rings leave links idle",
        fix=[*unset(named), "NCCL_GRAPH_DUMP_FILE=/tmp/graph.xml   # NCCL writes what it finds by itself: compare"],
        confirm="Run once without it.",
        severity="info",
        confidence="possible",
        ranks=facts.ranks_with(named),
        hosts={host for setting in named for host in setting.hosts},
        evidence=lines_of(named, 1),
    )
