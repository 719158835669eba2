"""NCCL and its network plugin, or the plugin and libfabric, are incompatible."""

from collections.abc import Iterator

from nccl_inspect.judging.engine import Facts, first_evidence
from nccl_inspect.judging.networks.fabrics import tcp_paths
from nccl_inspect.judging.page_words import Hit
from nccl_inspect.util.patterns import later

_LAST = later(r"ncclNetPlugin(?:_v(\d+) symbol| symbol \()")
_OLDEST = 4


def find(facts: Facts) -> Iterator[Hit]:
    """Find calls that the other side does not support, or a library that has none of the interfaces of NCCL."""
    probes = [notice for notice in facts.plugin("NET", "probe") if _is_last(notice.message)]
    if errors := facts.errors_of_rule("plugin-does-not-fit"):
        yield Hit(errors, {"libfabric": any(one.event and one.event.dialect == "aws-ofi-nccl" for one in errors)})
    elif probes and not facts.plugin("NET", "loaded", "initialized"):
        uses_tcp = (facts.notices("nccl/net-ib-none") or tcp_paths(facts)) and facts.spans_hosts()
        yield Hit(probes, {"probes": True, "tcp": uses_tcp}, evidence=first_evidence(probes[:2]))


def _is_last(message: str) -> bool:
    """Whether NCCL tries no other interface after it: the oldest one, or the only one of releases up to 2.11."""
    match = _LAST.search(message)
    return match is not None and (match[1] is None or int(match[1]) <= _OLDEST)
