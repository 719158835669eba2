"""RoCE connections fail: the address (GID) of a NIC does not reach its peer."""

from nccl_inspect.event.types import NetDevices
from nccl_inspect.judging.engine import Facts, Layer, Notice, Results, Rule, first_evidence, value
from nccl_inspect.judging.facts import as_shell, evidence_of_settings, unset_steps
from nccl_inspect.judging.networks.ib_errors import REFUSED
from nccl_inspect.model.job import Setting

RULE = Rule(
    name="ib-gid-index",
    category="network",
    layer=Layer.SETTING,
    title="RoCE connections fail: wrong GID index, or the GID does not reach the peer",
    may_cause=("wait", "loss", "call", "no-nvshmem", "no-kv-transfer", "no-ucx"),
    shows=("no-interface", "setting"),
)
_INVALID = "Invalid argument"
_EMPTY = "No data available"
"""The kernel's error for an empty row of the GID table."""
_UNREACHABLE = ("Connection timed out", "No route to host", "Network is unreachable")
_TO_THE_PEER = (None, "RTR")
"""The step that names the peer; before 2.24 the step is not printed."""
_MAPPED = "::ffff:"
_DEVICE = "mooncake/mooncake-device"
"""A NIC of another library, with its address."""


def judge(facts: Facts) -> Results:
    """Judge queue pairs that cannot reach their peer; InfiniBand uses LIDs instead of the GID index."""
    calls = [n for n in facts.notices("nccl/ib-call-failed") if value(n, "name") == "modify_qp"]
    failed = [
        n
        for n in facts.notices("nccl/ib-call-failed")
        if value(n, "name") == "query_gid" and value(n, "error") not in REFUSED
    ]
    failed += [
        notice
        for notice in (*facts.notices("nccl/ib-modify-qp-failed"), *calls)
        if str(value(notice, "error")).startswith((_INVALID, _EMPTY, *_UNREACHABLE))  # markup may follow
        and value(notice, "to_state") in _TO_THE_PEER
        and value(notice, "local_gid") != "N/A"
    ]
    failed += facts.errors_of_rule(RULE.name)
    links = _kinds_of_link(facts)
    if not failed or links == {"IB"}:
        return
    chosen = [setting for setting in facts.user_settings("NCCL_IB_GID_INDEX") if setting.value != "-1"]
    own = facts.notices(_DEVICE)
    sign = _sign(failed, chosen, own)
    yield RULE.finding(
        f"RoCE connections fail: {value(failed[0], 'error') or failed[0].message}{_addresses(failed[0])}",
        cause=sign
        or "unknown from this log; likely: a GID of the wrong kind or subnet, no route between the hosts, rails of the "
        "fabric that are not connected, ARP without a reply, or a peer port that is down; test with rping",
        impact="the ranks cannot connect, and the job does not start",
        fix=[
            *unset_steps(chosen),
            "show_gids   # which row is RoCE v2 with the IPv4 address? NCCL 2.21 and later choose it automatically",
            "NCCL_IB_GID_INDEX=<row>   # before 2.21; NCCL_IB_ADDR_RANGE=10.0.0.0/16 with several subnets",
            "rping -s -a <address>   # on one host; on the other: rping -c -a <address> -C 10, ib_write_bw -x <index>",
            "ip addr   # the NIC's network interface must be up, with an address, in the network namespace of the pod",
            "ip route get <address of the peer's NIC> from <address of the NIC>   # a route? then: ip neigh, does it "
            "reply to ARP?",
        ],
        # Without addresses and a list of devices the card may be InfiniBand.
        confidence="likely" if sign or links or value(failed[0], "local_gid") else "possible",
        notices=failed,
        evidence=[*first_evidence(failed), *first_evidence(own), *evidence_of_settings(chosen, 1)],
        fatal=True,
    )


def _kinds_of_link(facts: Facts) -> set[str]:
    cards = facts.with_event(NetDevices, lambda event: event.net == "IB")
    return {str(device[-1]) for notice in cards for device in getattr(notice.event, "devices", ())}


def _sign(failed: list[Notice], chosen: list[Setting], own: list[Notice]) -> str:
    """Return what points to the GID rather than the fabric."""
    if chosen and any(value(notice, "error") == _EMPTY for notice in failed):
        return f"{as_shell(chosen)} names a row of the GID table that is empty here"
    if chosen:
        return f"{as_shell(chosen)} names a row of the GID table that differs, or does not exist, on some NICs"
    if any(value(notice, "error") == _EMPTY for notice in failed):
        return (
            "the row of the GID table is empty: a wrong GID index (before 2.21 row 0 is the default), or the NIC's "
            "interface has no IP address, is down, or is in another network namespace"
        )
    if any(value(notice, "name") == "query_gid" for notice in failed):
        return "the row of the GID table does not exist: a wrong GID index, or a port without addresses"
    if any(str(value(n, "local_gid")).startswith("fe:80:") for n in own):
        return (
            "a NIC uses a link-local address (fe80…): the row of the GID table is not the one with the IP address, "
            "or the "
            "NIC has none in this network namespace"
        )
    gids = [(str(value(n, "local_gid")), str(value(n, "remote_gid"))) for n in failed if value(n, "local_gid")]
    if any(gid == "::" or gid.startswith("fe80:") for pair in gids for gid in pair):
        return (
            "a GID is link-local or empty: the NIC has no IP address in this network namespace, so it cannot be routed"
        )
    if any(local.startswith(_MAPPED) != remote.startswith(_MAPPED) for local, remote in gids):
        return "one end uses an IPv4 GID and the other an IPv6 GID: the GID tables of the hosts differ"
    if any(value(notice, "error") == _INVALID for notice in failed):
        return "the NIC rejects the address: the GID index, or the kind of its GID, is wrong"
    return ""


def _addresses(notice: Notice) -> str:
    local, remote = value(notice, "local_gid"), value(notice, "remote_gid")
    return f" from {local} ({value(notice, 'device')}) to {remote}" if local and remote else ""
