"""RoCE connections fail: the address (GID) of a NIC does not reach its peer."""

from collections.abc import Iterator

from nccl_inspect.event.types import NetDevices
from nccl_inspect.judging.engine import Facts, first_evidence, value
from nccl_inspect.judging.facts import evidence_of_settings
from nccl_inspect.judging.networks.ib_errors import REFUSED
from nccl_inspect.judging.page_words import Hit

_ERRORS = (
    *("Invalid argument", "No data available"),  # the second for an empty row of the GID table
    *("Connection timed out", "No route to host", "Network is unreachable"),
)
_TO_THE_PEER = (None, "RTR")
"""The step that names the peer; before 2.24 the step is not printed."""
_MAPPED = "::ffff:"


def find(facts: Facts) -> Iterator[Hit]:
    """Find queue pairs that cannot reach their peer; InfiniBand uses LIDs instead of the GID index."""
    calls = facts.notices("nccl/ib-call-failed")
    failed = [n for n in calls if value(n, "name") == "query_gid" and value(n, "error") not in REFUSED]
    failed += [
        notice
        for notice in (*facts.notices("nccl/ib-modify-qp-failed"), *calls)
        if (notice not in calls or value(notice, "name") == "modify_qp")
        and str(value(notice, "error")).startswith(_ERRORS)  # markup may follow
        and value(notice, "to_state") in _TO_THE_PEER
        and value(notice, "local_gid") != "N/A"
    ]
    failed += facts.errors_of_rule("ib-gid-index")
    cards = facts.with_event(NetDevices, lambda event: event.net == "IB")
    links = {str(device[-1]) for notice in cards for device in getattr(notice.event, "devices", ())}
    if not failed or links == {"IB"}:
        return
    chosen = [setting for setting in facts.user_settings("NCCL_IB_GID_INDEX") if setting.value != "-1"]
    own = facts.notices("mooncake/mooncake-device")  # a NIC of another library, with its address
    gids = [(str(value(n, "local_gid")), str(value(n, "remote_gid"))) for n in failed if value(n, "local_gid")]
    named = {
        "error": value(failed[0], "error"),
        "both": value(failed[0], "local_gid") and value(failed[0], "remote_gid"),
        "chosen": chosen,
        "link-local card": any(str(value(n, "local_gid")).startswith("fe:80:") for n in own),
        "link-local": any(gid == "::" or gid.startswith("fe80:") for pair in gids for gid in pair),
        "of two families": any(local.startswith(_MAPPED) != remote.startswith(_MAPPED) for local, remote in gids),
        "known": links,  # else, without addresses, the card may be InfiniBand
    }
    lines = [*first_evidence(failed), *first_evidence(own), *evidence_of_settings(chosen, 1)]
    yield Hit(failed, named, evidence=lines)
