"""The requested network does not come up."""

from collections.abc import Iterator

from nccl_inspect.event.types import NetDevices
from nccl_inspect.judging.engine import Facts, first_evidence, value
from nccl_inspect.judging.facts import evidence_of_settings
from nccl_inspect.judging.page_words import Hit


def find(facts: Facts) -> Iterator[Hit]:
    """Find the warning: without NCCL_NET, Socket always works, so a setting excludes it."""
    if failed := facts.errors_of_rule("network-not-found"):
        asked = facts.settings("NCCL_NET")
        named = [str(name) for notice in failed if (name := value(notice, "net"))]
        there = facts.with_event(NetDevices, lambda event: bool(event.devices))
        broken = [notice for notice in facts.plugin("NET", "failed") if notice.level != "INFO"]
        yield Hit(
            failed,
            {
                "names": [*named, *(setting.value for setting in asked)],
                "available": [getattr(notice.event, "net", "") for notice in there],
                "broken": broken[0].message if broken else "",
            },
            evidence=[*first_evidence([*broken[:1], *failed]), *evidence_of_settings(asked, 1)],
        )
