"""A transfer over EFA failed, for a reason other than a lost peer."""

from collections.abc import Iterator

from nccl_inspect.event.types import OfiProvider
from nccl_inspect.judging.engine import Facts, first_evidence, value
from nccl_inspect.judging.networks.efa_completions import code_of, completions, is_gone
from nccl_inspect.judging.page_words import Hit

_SPECIFIC = (4, 5, 7, 10, 18, 4097, 4098, 4099, 4105, 4125)
"""Those whose cause is known."""


def find(facts: Facts) -> Iterator[Hit]:
    """Find codes other than those of a lost peer, which are echoes of peer-death; else the lines around them."""
    failed = [notice for notice in completions(facts) if not is_gone(notice)]
    if failed:
        specific = [notice for notice in failed if code_of(notice) in _SPECIFIC]
        first = (specific or failed)[0]
        code = code_of(first)
        named = {
            "peer": value(first, "peer_host"),
            "error": value(first, "error"),
            "code": "" if code is None else str(code),
            "specific": specific,
            "zero-copy": code == 4125,
        }
        yield Hit(failed, named, evidence=first_evidence(specific or failed))
        return
    notices = facts.with_role("beside-completion")
    providers = {getattr(notice.event, "provider", "") for notice in facts.with_event(OfiProvider)}
    if notices and not facts.with_role("efa-completion") and (not providers or "efa" in providers):
        yield Hit(notices, {"error": notices[0].message.removeprefix("NET/OFI "), "without code": True})
