"""The topology or graph file that NCCL has to read is missing or does not match the machine."""

from collections.abc import Iterator

from nccl_inspect.judging.engine import Facts, Finding, Notice, Results, Rule, first_evidence
from nccl_inspect.judging.facts import as_shell, evidence_of_settings, unset_steps
from nccl_inspect.judging.hardware.topology_faults import finished_init
from nccl_inspect.judging.impact import Outcome
from nccl_inspect.util.patterns import later

RULE = Rule(
    name="topo-file-bad",
    category="environment",
    title="The topology or graph file cannot be read or does not match the machine",
    may_cause=("call", "stage", "resource", "few-channels", "ring-crosses-nodes", "rings-differ", "topology-differs"),
    shows=("setting",),
    local=True,
)
_NAMES = ("NCCL_TOPO_FILE", "NCCL_GRAPH_FILE")
_DOUBTFUL = "doubtful-topology"
"""Role of errors about the file if one is read, otherwise about the detected topology. At INFO they are optional."""
_OF_FILES = later(r"of node cpu not found|^XML |^KV Convert")
"""Errors that only files cause: NCCL detects CPUs itself, and its own topology has no channels."""
_UNNAMED = (
    ". The log does not name such a file: plugins (AWS), images or /etc/nccl.conf may set one; otherwise the error is "
    "about the topology that this machine, usually a virtual one, exposes"
)


def judge(facts: Facts) -> Results:
    """Judge NCCL's errors about these files: all but a missing topology file stop the rank."""
    unread = facts.notices("nccl/topology-file-not-opened")
    broken = facts.with_role("file-refused")
    settings = facts.settings(*_NAMES)
    doubtful = [notice for notice in facts.with_role(_DOUBTFUL) if notice.level != "INFO"]
    if not (settings or broken):  # without a file, the machine itself may have too many components
        doubtful = [notice for notice in doubtful if notice.production != "nccl/topology-too-large"]
    broken += doubtful
    errors = broken or unread
    if not errors:
        yield from _of_another_machine(facts)
        return
    outcome = _outcome(facts, is_broken=bool(broken))
    named = f" ({as_shell(settings)})" if settings else ""
    yield RULE.finding(
        f"NCCL cannot use the {_kind(errors)} file{named}: {errors[0].message}",
        cause=_cause(errors) + (_UNNAMED if doubtful and not settings else ""),
        impact=outcome.impact,
        fix=[
            *(f"unset {setting.name}   # or correct it: {setting.value}" for setting in settings[:2]),
            "grep -E 'TOPO_FILE|GRAPH_FILE' /etc/nccl.conf ~/.nccl.conf; env | grep NCCL_   # inside the container",
            "NCCL_TOPO_DUMP_FILE=/tmp/topo.xml NCCL_GRAPH_DUMP_FILE=/tmp/graph.xml   # compare with what NCCL detects",
            "Take plugin and file from the same, newest installer; a file for another machine type, or for all GPUs if "
            "the job uses only some, does not match.",
        ],
        severity=outcome.severity,
        confidence=_confidence(errors, certain=bool(settings or unread)),
        notices=errors,
        evidence=[*evidence_of_settings(settings, 1), *first_evidence(errors)],
        fatal=outcome.is_fatal,
    )


def _outcome(facts: Facts, *, is_broken: bool) -> Outcome:
    if not is_broken:
        return Outcome(
            "warning",
            "NCCL detects the topology itself. In a virtual machine it may not see which NIC is close to which GPU, "
            "and use fewer channels or no GPUDirect RDMA",
        )
    if finished_init(facts):
        return Outcome("info", "none in this log: the ranks came up with it")
    return Outcome("error", "the rank fails during initialization, and with it the job", is_fatal=True)


def _confidence(errors: list[Notice], *, certain: bool) -> str:
    if certain:
        return "certain"
    of_files = any(_DOUBTFUL not in notice.roles or _OF_FILES.search(notice.message) for notice in errors)
    return "likely" if of_files else "possible"


def _kind(errors: list[Notice]) -> str:
    texts = " ".join(notice.message for notice in errors)
    return "graph" if "XML graph file" in texts or "XML Graph" in texts else "topology"


def _cause(errors: list[Notice]) -> str:
    first = errors[0].production
    if first in ("nccl/topology-file-not-opened", "nccl/graph-file-missing"):
        return "the file is missing or cannot be read: not in the image, not mounted, or a leftover setting"
    if first == "nccl/topology-file-version":
        return "the file was written for another NCCL release"
    return "the file is damaged, or written for another machine type or NCCL release"


def _of_another_machine(facts: Facts) -> Iterator[Finding]:
    """Judge a graph file before the log shows that ranks came up with it: it is valid for one set of GPUs only."""
    named = facts.user_settings("NCCL_GRAPH_FILE")
    if not named or finished_init(facts) or facts.job.paths:
        return
    yield RULE.clue(
        f"{as_shell(named)} fixes the rings and trees of one machine",
        cause="NCCL takes them from the file instead of searching: the file matches only the complete set of GPUs and "
        "NICs that it was written for. Images of cloud machines set it in /etc/nccl.conf",
        impact="if it does not match, the initialization fails, or rings leave links idle",
        fix=[*unset_steps(named), "NCCL_GRAPH_DUMP_FILE=/tmp/graph.xml   # compare with what NCCL finds on its own"],
        confirm="Run once without it.",
        severity="info",
        confidence="possible",
        ranks=facts.ranks_with(named),
        hosts={host for setting in named for host in setting.hosts},
        evidence=evidence_of_settings(named, 1),
    )
