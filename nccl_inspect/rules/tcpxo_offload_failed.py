"""The offload engine of the machine refuses GPUDirect-TCPXO, or the connection to it breaks."""

from collections.abc import Iterator

from nccl_inspect.judging.engine import Effects, Facts
from nccl_inspect.judging.networks import google_plugins
from nccl_inspect.judging.page_words import Hit
from nccl_inspect.judging.statements import message_of

_MEMORY = ("registration", "daemon-memory", "daemon-request")
_ABORTS = ("Failed to initialize DXS", "getaddrinfo failed", "bind failed", "SctpHandler")


def find(facts: Facts) -> Iterator[Hit | Effects]:
    """Find failures between plugin and offload engine; at the end of a job, connections close normally."""
    errors = [*facts.errors_of_rule("tcpxo-offload-failed"), *google_plugins.aborted(facts, *_ABORTS)]
    if facts.is_over():
        yield Effects(errors)  # connections that closed in between
    if errors and (facts.job.failed or not google_plugins.works(facts)):
        first = errors[0]
        named = {
            "words": google_plugins.reason(first) or message_of(first).partition(": ")[2],
            "memory": any(part in first.production for part in _MEMORY),
            "socket": first.production == "tcpxo/fastrak-dxs-socket",
        }
        yield Hit(errors, named)
