"""The topology or graph file that NCCL was told to read is missing or does not fit."""

from collections.abc import Iterator

from nccl_inspect.model.finding import Finding, NotJudged
from nccl_inspect.model.job import Notice
from nccl_inspect.rules.engine import Rule
from nccl_inspect.rules.facts import Facts, first_said, hosts_in, lines_of, ranks_in, words_of

RULE = Rule(
    name="topo-file-bad",
    category="environment",
    severity="error",
    title="The topology or graph file cannot be read or does not fit",
    local=True,
)
_NAMES = ("NCCL_TOPO_FILE", "NCCL_GRAPH_FILE")


def judge(facts: Facts) -> Iterator[Finding | NotJudged]:
    """Judge what NCCL's reader of these files complains about: all but a missing topology file stops the rank."""
    unread = facts.notices("topology-file-not-opened")
    broken = facts.notices("graph-file-missing", "topology-file-version", "topology-xml-error")
    settings = facts.settings(*_NAMES)
    if settings or broken:  # without a file these are about what NCCL detected itself
        doubtful = facts.notices("topology-attribute-missing", "topology-xml-mismatch", "topology-too-large")
        broken += [
            notice for notice in doubtful if notice.level != "INFO"
        ]  # what it may do without it asks for at INFO
    said = broken or unread
    if not said:
        return
    dead = bool(broken) and not _went_on(facts)
    named = f" ({words_of(settings)})" if settings else ""
    yield RULE.finding(
        f"NCCL cannot use the {_kind(said)} file{named}: {said[0].message}",
        cause=_cause(said),
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
            "Take plugin and file from one installer; a file made for another machine type does not fit.",
        ],
        severity="error" if dead else "info" if broken else "warning",
        confidence="certain" if settings or unread else "likely",
        ranks=ranks_in(said),
        hosts=hosts_in(said),
        evidence=[*lines_of(settings, 1), *first_said(said)],
        fatal=dead,
    )


def _went_on(facts: Facts) -> bool:
    """Whether ranks finished their initialisation all the same."""
    return not facts.job.failed and any(comm.completed for comm in facts.job.communicators)


def _kind(said: list[Notice]) -> str:
    texts = " ".join(notice.message for notice in said)
    return "graph" if "XML graph file" in texts or "XML Graph" in texts else "topology"


def _cause(said: list[Notice]) -> str:
    first = said[0].production
    if first in ("topology-file-not-opened", "graph-file-missing"):
        return "the file is not there or cannot be read: not in the image, not mounted, or a left-over setting"
    if first == "topology-file-version":
        return "the file was made for another NCCL release"
    return "the file is damaged, or made for another machine type or NCCL release"
