"""GPUDirect-TCPXO does not find the interfaces of the GPU NICs, or the one for its control traffic."""

from collections.abc import Iterator

from nccl_inspect.judging.engine import Effects, Facts, Notice, value
from nccl_inspect.judging.networks import google_plugins
from nccl_inspect.judging.page_words import Hit

_NONE, _NO_NIC = "tcpxo/fastrak-no-interface", "tcpxo/fastrak-no-closest-nic"


def find(facts: Facts) -> Iterator[Hit | Effects]:
    """Find interfaces that the plugin does not find, and the daemon's NICs that it does not see."""
    missing = [
        *facts.notices(_NONE, _NO_NIC, "tcpxo/fastrak-dxs-interface", "tcpxo/fastrak-interface-path"),
        *facts.errors_of_rule("tcpxo-no-interface"),
        *google_plugins.aborted(facts, "Could not find closest netdev", "No interface found for source IP"),
    ]
    unknown = facts.notices("tcpxo/fastrak-address-unknown")
    if missing:
        named = {
            "control": next((value(notice, "interface") for notice in missing if notice.production == _NONE), None),
            "gpus": [str(value(notice, "gpu")) for notice in missing if notice.production == _NO_NIC],
            "addresses": _addresses(missing),
            "works": google_plugins.works(facts) and not facts.job.failed,
        }
        yield Hit([*missing, *unknown], named)
    elif facts.enabled_settings("NCCL_FASTRAK_ALLOW_NIC_SUBSET"):
        yield Effects(unknown)
    elif unknown:
        yield Hit(unknown, {"unknown": _addresses(unknown)})


def _addresses(notices: list[Notice]) -> list[str]:
    return [str(address) for notice in notices if (address := value(notice, "address"))]
