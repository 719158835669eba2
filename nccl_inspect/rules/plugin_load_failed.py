"""A network plugin exists, but cannot be loaded."""

from collections.abc import Iterator

from nccl_inspect.judging.engine import Facts
from nccl_inspect.judging.networks.fabrics import lacks_a_library, tcp_paths
from nccl_inspect.judging.page_words import Hit


def find(facts: Facts) -> Iterator[Hit]:
    """Find errors of the dynamic linker for network plugins; probes for symbols of older interfaces are not errors."""
    broken = [*facts.plugin("NET", "load-failed"), *filter(lacks_a_library, facts.plugin("NET", "not-found"))]
    if broken and not facts.plugin("NET", "loaded"):
        named = {
            "error": getattr(broken[0].event, "detail", None) or broken[0].message,
            "tcp": tcp_paths(facts),
            "missed": facts.with_role("no-network"),
            "several hosts": facts.spans_hosts(),
        }
        yield Hit(broken, named, ranks={rank for notice in broken for rank in notice.ranks})
