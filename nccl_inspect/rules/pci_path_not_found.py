"""An old release cannot do without the place of a GPU in the PCI tree of /sys."""

from collections.abc import Iterator

from nccl_inspect.judging import propagated_errors
from nccl_inspect.judging.engine import Facts, first_evidence
from nccl_inspect.judging.facts import hosts_in
from nccl_inspect.judging.page_words import Hit

_SYSTEM_ERROR = 2
_READS_PLACE = ("graph/xml.cc", "graph/topo.cc")


def find(facts: Facts) -> Iterator[Hit]:
    """Find the warning where the call failed that reads the place: since 2.10, NCCL continues without it."""
    failed = propagated_errors.frames(facts, _SYSTEM_ERROR, _READS_PLACE)
    hosts = hosts_in(failed)
    notices = [one for one in facts.notices("nccl/speed-path-unreadable") if not one.hosts or hosts & set(one.hosts)]
    if failed and notices:
        yield Hit(notices, evidence=first_evidence([*notices[:2], *failed[:1]]))
