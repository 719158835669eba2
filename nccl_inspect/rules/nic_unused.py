"""A NIC that NCCL lists carries no connection of its host."""

from collections.abc import Iterator

from nccl_inspect.judging.engine import Facts
from nccl_inspect.judging.networks.nic_use import idle
from nccl_inspect.judging.page_words import Hit
from nccl_inspect.util.wording import some_names


def find(facts: Facts) -> Iterator[Hit]:
    """Find hosts where the idle NIC is for NCCL, or may be."""
    hosts = [host for host in idle(facts) if not host.absent]
    meant = [host for host in hosts if host.meant]
    for first in (meant or hosts)[:1]:
        used, names = len(first.used), first.names
        yield Hit(
            named={
                "idle": some_names(names),
                "host": first.host.name,
                "one": len(names) == 1,
                "used": used,
                "total": used + len(names),
                "others": meant[1:],
                "meant": meant,
            },
            ranks=[rank for host in meant for rank in host.host.ranks],
            hosts=[host.host.name for host in meant],
            evidence=[host.evidence for host in meant],
        )
