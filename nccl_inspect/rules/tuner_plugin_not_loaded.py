"""A tuner plugin that was requested, or that has data for this platform, is not used."""

from collections.abc import Iterator

from nccl_inspect.event.types import PluginStatus
from nccl_inspect.judging.engine import Effects, Facts, first_evidence, value
from nccl_inspect.judging.facts import evidence_of_settings
from nccl_inspect.judging.page_words import Hit

_INSTEAD = "tuner instead"
"""The end of the message about the last search for an interface."""
_TUNED = ("p5", "p6")
"""Types for which aws-ofi-nccl has tuning data."""


def find(facts: Facts) -> Iterator[Hit | Effects]:
    """Find the plugin's messages, and a library that was requested but not loaded; no tuner at all is normal.

    NCCL also looks for a tuner in the network plugin's library, and reports if the last search finds none.
    """
    failed = facts.errors_of_rule("tuner-plugin-not-loaded")
    overridden = facts.notices("aws-ofi-nccl/ofi-tuner-overridden")
    unavailable = facts.notices("aws-ofi-nccl/ofi-tuner-not-available")
    requested = [one for one in facts.settings("NCCL_TUNER_PLUGIN") if one.value not in ("none", "")]
    missed = [] if facts.plugin("TUNER", "loaded") else facts.plugin("TUNER", "not-found", "probe")
    is_tuned = facts.platform is not None and facts.platform.name.startswith(_TUNED)
    has_data = is_tuned and any("Libfabric" in kind.detail for kind in facts.inter_host_net_paths().kinds)
    ended = [notice for notice in missed if _INSTEAD in notice.message and _is_probe(notice.event)]
    is_missing = not (failed or overridden or unavailable) and bool(requested or has_data)
    yield Effects(failed)
    if notices := failed or overridden or unavailable or (missed if is_missing else ended):
        named = {
            "failed": failed,
            "given": facts.user_settings("NCCL_ALGO", "NCCL_PROTO"),
            "tuned": any(str(value(notice, "platform")).startswith(_TUNED) for notice in notices),
            "missing": is_missing,
            "requested": requested,
        }
        shown = evidence_of_settings(requested, 1) if is_missing else []
        yield Hit(notices, named, evidence=[*shown, *first_evidence(notices)[:3]])


def _is_probe(event: object) -> bool:
    return isinstance(event, PluginStatus) and event.status == "probe"
