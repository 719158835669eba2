"""The network does not let ranks reach each other."""

import re
from collections.abc import Iterator

from nccl_inspect.event.types import BootstrapInterface
from nccl_inspect.judging.connecting import NO_ROUTE, TIMED_OUT, addresses, came_up, gave_up, is_one_of, reason, retried
from nccl_inspect.judging.engine import Rule
from nccl_inspect.judging.facts import Facts
from nccl_inspect.judging.remedies import CHOOSE_INTERFACE
from nccl_inspect.model.finding import Finding, NotJudged
from nccl_inspect.model.job import Notice
from nccl_inspect.util.wording import listed

RULE = Rule(
    name="bootstrap-no-route",
    category="bootstrap",
    severity="error",
    title="Ranks cannot reach each other over TCP",
    echoes=("bootstrap-failed", "hang-in-init"),
)
_BRIDGE = re.compile(r"172\.(?:1[7-9]|2\d|30)\.\d{1,3}\.\d{1,3}\b")
"""What Docker takes for its bridges first (default-address-pools); 172.31 is left out: clouds number hosts with it."""
_OWN_NETWORK = "--network=host   # option of docker run; or an overlay network. Pods: hostNetwork: true"
_ONE_FAMILY = "NCCL_SOCKET_FAMILY=AF_INET   # IPv4 on all ranks; AF_INET6 where all hosts have IPv6"

_DROPPED = (
    "packets are dropped without a word: a firewall, security group or NetworkPolicy, or an address that nobody has"
)
_REJECTED = (
    "no route to that address from this host or pod, or a firewall that rejects: another subnet, a NetworkPolicy, an "
    "interface that other hosts cannot reach"
)


def judge(facts: Facts) -> Iterator[Finding | NotJudged]:
    """Judge connections that were given up, those still tried when the job was ended, or where the log ends."""
    failed = gave_up(facts, *NO_ROUTE)
    told = failed or ([] if came_up(facts) else retried(facts, *NO_ROUTE))
    if not told:
        return
    ended = bool(failed or facts.job.ended_by)
    silent = all(is_one_of(notice, TIMED_OUT) for notice in told)
    where = addresses(told) or "another rank"
    bridge = _bridge(told)
    families = _families(facts)
    causes = [
        _DROPPED if silent else _REJECTED,
        f"{bridge} may be of a Docker bridge, which no other host reaches" if bridge else "",
        _different(facts),
        families,
        "" if ended else "The lines up to 'exceeded' or to 'Init COMPLETE' tell how it ended",
    ]
    yield RULE.finding(
        f"ranks cannot reach {where}: "
        + ("no answer" if silent else "no route, or a firewall refuses")
        + ("" if ended else f" ({_error(told[-1])}); the log ends while NCCL tries again"),
        cause=". ".join(filter(None, causes)),
        impact="ranks that cannot reach each other build no communicator: the job does not start",
        fix=[
            f"ip route get <address>; nc -vz <address> <port>   # {where}, on the host that says so, in its container",
            "Let all hosts of the job reach each other on all TCP ports: NCCL uses ports that the kernel "
            "chooses. Or set net.ipv4.ip_local_port_range and open those.",
            *([_ONE_FAMILY] if families else []),
            *([_OWN_NETWORK] if bridge else []),
            CHOOSE_INTERFACE,
        ],
        confidence="likely" if ended else "possible",
        notices=told,
        fatal=True,
    )


def interface(notice: Notice) -> str:
    """The interface and the address that a process says it uses."""
    event = notice.event
    return f"{event.interface} ({event.address or 'no address'})" if isinstance(event, BootstrapInterface) else ""


def _error(notice: Notice) -> str:
    return next(error for error in NO_ROUTE if error in reason(notice))


def _different(facts: Facts) -> str:
    """The interfaces, where hosts use such of different names: their networks may have no route to each other."""
    said = facts.said(BootstrapInterface)
    names = {getattr(notice.event, "interface", "") for notice in said}
    return f"The hosts use different interfaces: {listed(map(interface, said))}" if len(names) > 1 else ""


def _bridge(told: list[Notice]) -> str:
    """An address that Docker may have given to a container: one of a bridge, which is known on its host only."""
    found = (_BRIDGE.search(addresses([notice])) for notice in told)
    return next((match[0] for match in found if match), "")


def _families(facts: Facts) -> str:
    """In words that some ranks have IPv6 and others IPv4 addresses; empty where that is not so."""
    kinds = {":" in address: interface(one) for one in facts.said(BootstrapInterface) if (address := _address(one))}
    return f"These do not meet: {kinds[True]} is IPv6, {kinds[False]} is IPv4" if len(kinds) > 1 else ""


def _address(notice: Notice) -> str:
    return str(getattr(notice.event, "address", None) or "").partition("<")[0]
