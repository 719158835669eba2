"""libfabric is too old for this NCCL, or for aws-ofi-nccl."""

from nccl_inspect.judging.engine import Facts, Notice, Results, Rule, value
from nccl_inspect.judging.impact import Outcome
from nccl_inspect.judging.networks.fabrics import tcp_paths
from nccl_inspect.model import versions

RULE = Rule(
    name="efa-libfabric-incompat",
    category="plugins",
    cloud="AWS",
    title="libfabric is too old for this NCCL or for aws-ofi-nccl",
    may_cause=("no-efa",),
    supersedes=("efa-init-failed", "memory-registration-failed", "plugin-does-not-fit"),
    nest_under_effect=True,
    local=True,
)

_INVALID = -22
_GPU = 2
_CUMEM = versions.order("2.19")
"""Since then NCCL allocates GPU memory in a way that an old libfabric cannot register."""
_FIX = (
    "Use a current EFA installer in the image (for NCCL 2.19 at least 1.29.1), which includes a matching libfabric and "
    "plugin.",
    "LD_LIBRARY_PATH=/opt/amazon/efa/lib:/opt/amazon/ofi-nccl/lib:$LD_LIBRARY_PATH   # its libfabric first",
    "fi_info --version; ldd <path>/libnccl-net.so | grep libfabric   # which libfabric is used?",
)
_STOPGAP = "FI_EFA_SET_CUDA_SYNC_MEMOPS=0   # on all ranks, a stopgap"


def judge(facts: Facts) -> Results:
    """Judge the plugin's messages about libfabric, and GPU memory that libfabric rejects as invalid."""
    stated, refused = facts.errors_of_rule(RULE.name), _unregistered(facts)
    notices = [*stated, *refused]
    if not notices:
        return
    outcome = _outcome(facts, bool(refused))
    yield RULE.finding(
        _summary(stated),
        cause="libfabric, aws-ofi-nccl and NCCL of this image are of different generations"
        + ("" if stated else ": since 2.19 NCCL allocates GPU memory in a way that older libfabric releases reject"),
        impact=outcome.impact,
        fix=[*_FIX, *([_STOPGAP] if refused else [])],
        confidence="certain" if stated else "likely" if _releases(facts) else "possible",
        severity=outcome.severity,
        notices=notices,
        fatal=outcome.is_fatal,
    )


def _outcome(facts: Facts, is_refused: bool) -> Outcome:
    if is_refused or (facts.job.failed and not facts.job.paths):
        return Outcome("error", "the job stops while connecting", is_fatal=True)
    if tcp_paths(facts):
        return Outcome("error", "the plugin does not initialize; hosts communicate over TCP")
    return Outcome(
        "error" if facts.job.failed else "warning" if facts.spans_hosts() else "info",
        "the plugin does not initialize; NCCL continues without EFA, or stops if NCCL_NET requires it",
    )


def _unregistered(facts: Facts) -> list[Notice]:
    """GPU memory that could not be registered, unless all ranks run releases that allocate it the old way."""
    releases = _releases(facts)
    if releases and max(releases) < _CUMEM:
        return []
    failed = facts.notices("aws-ofi-nccl/ofi-register-failed")
    return [notice for notice in failed if value(notice, "rc") == _INVALID and value(notice, "type") == _GPU]


def _releases(facts: Facts) -> list[tuple[int, ...]]:
    return [versions.order(text) for text in facts.job.nccl_versions if "inferred" not in text]


def _summary(stated: list[Notice]) -> str:
    if not stated:
        return "libfabric refused to register GPU memory (RC -22, invalid argument)"
    needed = value(stated[0], "version")
    if needed:
        return f"libfabric is too old for aws-ofi-nccl: it needs at least {str(needed).rstrip('.')}"
    return "aws-ofi-nccl was built with an unsuitable libfabric: FI_OPT_CUDA_API_PERMITTED is not declared"
