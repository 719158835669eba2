"""NCCL and its network plugin, or the plugin and libfabric, do not understand each other."""

from collections.abc import Iterator

from nccl_inspect.model.finding import Finding, NotJudged
from nccl_inspect.rules import stated
from nccl_inspect.rules.engine import Rule
from nccl_inspect.rules.facts import Facts
from nccl_inspect.rules.remedies import EFA_RELEASES

RULE = Rule(
    name="plugin-does-not-fit",
    category="plugins",
    severity="error",
    title="NCCL and a plugin, or the plugin and its library, do not fit together",
    specific=("efa-libfabric-incompat", "plugin-load-failed"),
)
_OF_LIBFABRIC = "aws-ofi-nccl"


def judge(facts: Facts) -> Iterator[Finding | NotJudged]:
    """Judge calls that the other side does not know, and values that it cannot use."""
    said = facts.leading_to(RULE.name)
    if not said:
        return
    is_libfabric = any(notice.event and notice.event.dialect == _OF_LIBFABRIC for notice in said)
    yield stated.finding(
        RULE,
        facts,
        said,
        f"a plugin does not fit: {said[0].message}",
        cause="NCCL, the plugin and the library below it come from releases that do not know each other: an image with "
        "parts of several installers, or a second copy of one of them in LD_LIBRARY_PATH",
        stops="NCCL goes on without the plugin, or the connection fails, and with it the job",
        fix=(
            "ldconfig -p | grep -E 'libnccl|libfabric'; echo $LD_LIBRARY_PATH   # inside the container: one of each?",
            "Take NCCL, the plugin and libfabric of one base image or installer.",
            *((EFA_RELEASES,) if is_libfabric else ()),
        ),
        confirm="Check 'Using network …' and the connections: does the plugin carry traffic?",
    )
