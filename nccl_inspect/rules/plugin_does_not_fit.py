"""NCCL and its network plugin, or the plugin and libfabric, do not understand each other."""

import re
from collections.abc import Iterator

from nccl_inspect.judging import stated_errors
from nccl_inspect.judging.engine import Rule
from nccl_inspect.judging.facts import Facts, first_said
from nccl_inspect.judging.networks.fabrics import tcp_paths
from nccl_inspect.judging.remedies import EFA_RELEASES
from nccl_inspect.model.finding import Finding, NotJudged

RULE = Rule(
    name="plugin-does-not-fit",
    category="plugins",
    severity="error",
    title="NCCL and a plugin, or the plugin and its library, do not fit together",
    echoes=("internal-error",),
)
_OF_LIBFABRIC = "aws-ofi-nccl"
_ONE_IMAGE = "Take NCCL, the plugin and libfabric of one base image or installer."
_LAST = re.compile(r"ncclNetPlugin(?:_v(\d+) symbol| symbol \()")
_OLDEST = 4


def judge(facts: Facts) -> Iterator[Finding | NotJudged]:
    """Judge calls that the other side does not know, and values that it cannot use."""
    said = facts.leading_to(RULE.name)
    if not said:
        yield from _clue(facts)
        return
    is_libfabric = any(notice.event and notice.event.dialect == _OF_LIBFABRIC for notice in said)
    yield stated_errors.finding(
        RULE,
        facts,
        said,
        f"a plugin does not fit: {said[0].message}",
        cause="NCCL, the plugin and the library below it come from releases that do not know each other: an image with "
        "parts of several installers, or a second copy of one of them in LD_LIBRARY_PATH",
        stops="NCCL goes on without the plugin, or the connection fails, and with it the job",
        fix=(
            "ldconfig -p | grep -E 'libnccl|libfabric'; echo $LD_LIBRARY_PATH   # inside the container: one of each?",
            _ONE_IMAGE,
            *((EFA_RELEASES,) if is_libfabric else ()),
        ),
        confirm="Check 'Using network …' and the connections: does the plugin carry traffic?",
    )


def _clue(facts: Facts) -> Iterator[Finding]:
    """Judge a library in which NCCL finds none of the interfaces that it knows: it goes on with its own networks."""
    probes = [notice for notice in facts.plugin("NET", "probe") if _is_last(notice.message)]
    if not probes or facts.plugin("NET", "loaded", "initialized"):
        return
    yield RULE.clue(
        "the library that NCCL takes for its network plugin holds no interface that this release knows",
        cause="the plugin is newer or older than this NCCL, or the library is a plugin of another kind",
        impact="NCCL goes on with its own InfiniBand or TCP network",
        fix=(
            "ldconfig -p | grep libnccl-net; echo $LD_LIBRARY_PATH   # inside the container: which file?",
            _ONE_IMAGE,
        ),
        confirm="Look at 'Using network …': does it name the plugin's network?",
        severity="warning"
        if (facts.notices("nccl/net-ib-none") or tcp_paths(facts)) and facts.several_hosts()
        else "info",
        notices=probes,
        evidence=first_said(probes[:2]),
    )


def _is_last(message: str) -> bool:
    """Whether NCCL tries no other interface after it: an old one, or those up to 2.11, which know one only."""
    found = _LAST.search(message)
    return found is not None and (found[1] is None or int(found[1]) <= _OLDEST)
