"""The network does not let ranks reach each other."""

from nccl_inspect.event.types import BootstrapInterface
from nccl_inspect.judging.connecting import (
    NO_ROUTE,
    TIMED_OUT,
    addresses,
    failed_connections,
    has_built_communicator,
    has_error,
    reason,
    retried_connections,
)
from nccl_inspect.judging.engine import Facts, Layer, Notice, Results, Rule
from nccl_inspect.judging.remedies import CHOOSE_INTERFACE
from nccl_inspect.util.patterns import later
from nccl_inspect.util.wording import listed

RULE = Rule(
    name="bootstrap-no-route",
    category="bootstrap",
    layer=Layer.RESOURCE,
    title="Ranks cannot reach each other over TCP",
    may_cause=("wait", "loss", "call", "stage"),
    shows=("no-interface", "not-reached"),
)
_BRIDGE = later(r"172\.(?:1[7-9]|2\d|30)\.\d{1,3}\.\d{1,3}\b")
"""What Docker uses for its bridges first (default-address-pools), except 172.31, which clouds use for hosts."""
_OWN_NETWORK = "--network=host   # option of docker run; or an overlay network. Pods: hostNetwork: true"
_ONE_FAMILY = "NCCL_SOCKET_FAMILY=AF_INET   # IPv4 on all ranks; AF_INET6 if all hosts have IPv6"

_DROPPED = (
    "packets are silently dropped: by a firewall, security group or NetworkPolicy, or because nobody has that address"
)
_REJECTED = (
    "there is no route to that address from this host or pod, or a firewall rejects it: another subnet, a "
    "NetworkPolicy, an interface that other hosts cannot reach"
)


def judge(facts: Facts) -> Results:
    """Judge connections that NCCL gave up on, or was still retrying when the job or the log ended."""
    failed = failed_connections(facts, *NO_ROUTE)
    notices = failed or ([] if has_built_communicator(facts) else retried_connections(facts, *NO_ROUTE))
    if not notices:
        return
    ended = bool(failed or facts.job.ended_by)
    silent = all(has_error(notice, TIMED_OUT) for notice in notices)
    where = addresses(notices) or "another rank"
    bridge = _bridge(notices)
    families = _families(facts)
    causes = [
        _DROPPED if silent else _REJECTED,
        f"{bridge} may belong to a Docker bridge, which other hosts cannot reach" if bridge else "",
        _interface_names(facts),
        families,
        "" if ended else "The lines up to 'exceeded' or 'Init COMPLETE' would show how it ended",
    ]
    yield RULE.finding(
        f"ranks cannot reach {where}: "
        + ("no answer" if silent else "no route, or a firewall refuses")
        + ("" if ended else f" ({_error(notices[-1])}); the log ends while NCCL is retrying"),
        cause=". ".join(filter(None, causes)),
        impact="ranks that cannot reach each other cannot build a communicator: the job does not start",
        fix=[
            *([_OWN_NETWORK] if bridge else []),
            f"ip route get <address>; nc -vz <address> <port>   # {where}, on the reporting host, in its container",
            "Allow all TCP ports between all hosts of the job: the kernel chooses the ports for NCCL. Or set "
            "net.ipv4.ip_local_port_range and open that range.",
            *([_ONE_FAMILY] if families else []),
            CHOOSE_INTERFACE,
        ],
        confidence="likely" if ended else "possible",
        notices=notices,
        fatal=True,
    )


def interface(notice: Notice) -> str:
    """The interface and the address that a process reports to use."""
    event = notice.event
    return f"{event.interface} ({event.address or 'no address'})" if isinstance(event, BootstrapInterface) else ""


def _error(notice: Notice) -> str:
    return next(error for error in NO_ROUTE if error in reason(notice))


def _interface_names(facts: Facts) -> str:
    """The interfaces, if their names differ between hosts: there may be no route between their networks."""
    notices = facts.with_event(BootstrapInterface)
    names = {getattr(notice.event, "interface", "") for notice in notices}
    return f"The hosts use different interfaces: {listed(map(interface, notices))}" if len(names) > 1 else ""


def _bridge(notices: list[Notice]) -> str:
    """An address that may be of a Docker bridge, which is known only on its own host."""
    matches = (_BRIDGE.search(addresses([notice])) for notice in notices)
    return next((match[0] for match in matches if match), "")


def _families(facts: Facts) -> str:
    """A sentence if some ranks have IPv6 and others IPv4 addresses, else empty."""
    kinds = {
        ":" in address: interface(notice)
        for notice in facts.with_event(BootstrapInterface)
        if (address := str(getattr(notice.event, "address", None) or "").partition("<")[0])
    }
    return f"Address families differ: {kinds[True]} is IPv6, {kinds[False]} is IPv4" if len(kinds) > 1 else ""
