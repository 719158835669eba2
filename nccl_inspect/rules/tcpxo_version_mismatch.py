"""The GPUDirect-TCPXO plugins of two nodes, or the plugin and the host software, are of incompatible releases."""

from collections.abc import Iterator

from nccl_inspect.judging.engine import Facts
from nccl_inspect.judging.networks import google_plugins
from nccl_inspect.judging.page_words import Hit
from nccl_inspect.judging.statements import message_of
from nccl_inspect.util.grouping import grouped
from nccl_inspect.util.wording import some_names

_HOST = ("Server version is unsupported", "kUnsupportedClientVersion")


def find(facts: Facts) -> Iterator[Hit]:
    """Find the plugin's errors about releases, and plugins of several releases in a job that did not connect."""
    peers = facts.errors_of_rule("tcpxo-version-mismatch")
    refused = [n for n in facts.notices("tcpxo/fastrak-dxs-failed") if any(text in message_of(n) for text in _HOST)]
    loading = [notice for notice in facts.plugin("NET", "loading") if notice.production == "tcpxo/fastrak-initializing"]
    releases = grouped((str(getattr(n.event, "detail", None) or ""), host) for n in loading for host in n.hosts)
    releases.pop("", None)
    if errors := [*peers, *refused]:
        yield Hit(errors, {"peers": peers})
    elif len(releases) > 1 and not google_plugins.works(facts):
        nodes = (f"{release} on {some_names(sorted({*releases[release]}))}" for release in sorted(releases))
        yield Hit(loading, {"releases": sorted(releases), "nodes": "; ".join(nodes)})
