"""NCCL and its network plugin, or the plugin and libfabric, are incompatible."""

from collections.abc import Iterator

from nccl_inspect.judging import stated_errors
from nccl_inspect.judging.engine import Facts, Finding, Layer, Results, Rule, first_evidence
from nccl_inspect.judging.networks.fabrics import tcp_paths
from nccl_inspect.judging.remedies import EFA_RELEASES
from nccl_inspect.util.patterns import later

RULE = Rule(
    name="plugin-does-not-fit",
    category="plugins",
    layer=Layer.RESOURCE,
    title="NCCL and a plugin, or the plugin and its library, are incompatible",
)
_OF_LIBFABRIC = "aws-ofi-nccl"
_ONE_IMAGE = "Take NCCL, the plugin and libfabric from one base image or installer."
_LAST = later(r"ncclNetPlugin(?:_v(\d+) symbol| symbol \()")
_OLDEST = 4


def judge(facts: Facts) -> Results:
    """Judge calls that the other side does not support, and values that it cannot use."""
    errors = facts.errors_of_rule(RULE.name)
    if not errors:
        yield from _clue(facts)
        return
    is_libfabric = any(notice.event and notice.event.dialect == _OF_LIBFABRIC for notice in errors)
    yield stated_errors.finding(
        RULE,
        facts,
        errors,
        f"a plugin is incompatible: {errors[0].message}",
        cause="NCCL, the plugin and the library below it come from incompatible releases: an image with parts of "
        "several installers, or a second copy of one of them in LD_LIBRARY_PATH",
        stops="NCCL continues without the plugin, or the connection fails, and with it the job",
        fix=(
            "ldconfig -p | grep -E 'libnccl|libfabric'; echo $LD_LIBRARY_PATH   # inside the container: one of each?",
            _ONE_IMAGE,
            *((EFA_RELEASES,) if is_libfabric else ()),
        ),
        confirm="Check 'Using network …' and the connections: does the plugin carry the traffic?",
    )


def _clue(facts: Facts) -> Iterator[Finding]:
    """Judge a library that has none of the interfaces NCCL supports: NCCL continues with its own networks."""
    probes = [notice for notice in facts.plugin("NET", "probe") if _is_last(notice.message)]
    if not probes or facts.plugin("NET", "loaded", "initialized"):
        return
    yield RULE.clue(
        "the library that NCCL opened as its network plugin has no interface that this release supports",
        cause="the plugin is newer or older than this NCCL, or the library is a plugin of another kind",
        impact="NCCL continues with its own InfiniBand or TCP network",
        fix=(
            "ldconfig -p | grep libnccl-net; echo $LD_LIBRARY_PATH   # inside the container: which file?",
            _ONE_IMAGE,
        ),
        confirm="Check 'Using network …': does it name the plugin's network?",
        severity="warning"
        if (facts.notices("nccl/net-ib-none") or tcp_paths(facts)) and facts.spans_hosts()
        else "info",
        notices=probes,
        evidence=first_evidence(probes[:2]),
    )


def _is_last(message: str) -> bool:
    """Whether NCCL tries no other interface after it: the oldest one, or the only one of releases up to 2.11."""
    match = _LAST.search(message)
    return match is not None and (match[1] is None or int(match[1]) <= _OLDEST)
