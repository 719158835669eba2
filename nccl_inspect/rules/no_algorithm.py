"""No algorithm and protocol is left for a collective."""

from collections.abc import Iterator

from nccl_inspect.judging.engine import Facts, value
from nccl_inspect.judging.page_words import Hit
from nccl_inspect.util.patterns import later

_SETTING = later(r"(NCCL_ALGO|NCCL_PROTO) was set to (.+?)\.(?= NCCL_|$)")
"""What 2.24 and later add (src/enqueue.cc); earlier releases used a ring where a setting did not fit."""
_CAN = {
    "AllReduce": "Ring, Tree, CollNet and NVLS",
    **dict.fromkeys(("AllGather", "ReduceScatter"), "Ring, PAT, CollNetDirect and NVLS"),
    **dict.fromkeys(("Broadcast", "Reduce"), "Ring only"),
}
"""The algorithms that NCCL has for each collective: src/graph/tuning.cc, 2.24 and later."""


def find(facts: Facts) -> Iterator[Hit]:
    """Find NCCL's own line; collnet-unavailable judges requests for CollNet."""
    failed = [n for n in facts.notices("nccl/no-algorithm") if "collnet" not in str(value(n, "settings")).lower()]
    if failed := [*failed, *facts.errors_of_rule("no-algorithm")]:
        function = value(failed[0], "function")
        settings = dict(_SETTING.findall(str(value(failed[0], "settings"))))
        named = {
            "function": function,
            "over": facts.is_over() and not facts.job.failed,
            "names": " ".join(settings),
            "words": [f"{name}={setting}" for name, setting in settings.items()],
            "NCCL_ALGO": "NCCL_ALGO" in settings,
            "can": _CAN.get(str(function)),
        }
        yield Hit(failed, named)
