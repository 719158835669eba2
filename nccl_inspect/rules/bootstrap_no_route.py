"""The network does not let ranks reach each other."""

from collections.abc import Iterator

from nccl_inspect.event_types import BootstrapInterface
from nccl_inspect.model.job import Finding, Notice, NotJudged
from nccl_inspect.rules.bootstrap_connect_refused import addresses, came_up, gave_up, retried
from nccl_inspect.rules.engine import Rule
from nccl_inspect.rules.facts import Facts, first_said, hosts_in, listed, ranks_in
from nccl_inspect.rules.remedies import CHOOSE_INTERFACE

RULE = Rule(
    name="bootstrap-no-route",
    category="bootstrap",
    severity="error",
    title="Ranks cannot reach each other over TCP",
    echo_of=("bootstrap-wrong-interface", "loopback-between-hosts"),
    because=("env-mismatch-across-ranks",),
)
_TIMED_OUT = ("Connection timed out", "exceeded timeouts")
NO_ROUTE = ("No route to host", "Network is unreachable", *_TIMED_OUT)


def judge(facts: Facts) -> Iterator[Finding | NotJudged]:
    """Judge connections that were given up, those still tried when the job was ended, or where the log ends."""
    failed = gave_up(facts, *NO_ROUTE)
    told = failed or ([] if came_up(facts) else retried(facts, *NO_ROUTE))
    if not told:
        return
    ended = bool(failed or facts.job.ended_by)
    silent = all(any(error in notice.message for error in _TIMED_OUT) for notice in told)
    where = addresses(told) or "another rank"
    yield RULE.finding(
        f"ranks cannot reach {where}: "
        + ("no answer" if silent else "no route, or a firewall refuses")
        + ("" if ended else f" ({_error(told[-1])}); the log ends while NCCL tries again"),
        cause=(
            "packets are dropped without a word: a firewall, security group or NetworkPolicy, or an address that "
            "nobody has"
            if silent
            else "no route to that address from this host or pod, or a firewall that rejects: another subnet, a "
            "NetworkPolicy, an interface that other hosts cannot reach"
        )
        + _different(facts)
        + ("" if ended else ". The lines up to 'exceeded' or to 'Init COMPLETE' tell how it ended"),
        impact="ranks that cannot reach each other build no communicator: the job does not start",
        fix=[
            f"ip route get <address>; nc -vz <address> <port>   # {where}, on the host that says so, in its container",
            "Let all hosts of the job reach each other on all TCP ports: NCCL uses ports that the kernel "
            "chooses. Or set net.ipv4.ip_local_port_range and open those.",
            CHOOSE_INTERFACE,
        ],
        confidence="likely" if ended else "possible",
        ranks=ranks_in(told),
        hosts=hosts_in(told),
        evidence=first_said(told),
        fatal=True,
    )


def interface(notice: Notice) -> str:
    """The interface and the address that a process says it uses."""
    event = notice.event
    return f"{event.interface} ({event.address or 'no address'})" if isinstance(event, BootstrapInterface) else ""


def _error(notice: Notice) -> str:
    return next(error for error in NO_ROUTE if error in notice.message)


def _different(facts: Facts) -> str:
    """The interfaces, where hosts use such of different names: their networks may have no route to each other."""
    said = facts.said(BootstrapInterface)
    names = {getattr(notice.event, "interface", "") for notice in said}
    return f". The hosts use different interfaces: {listed(map(interface, said))}" if len(names) > 1 else ""
