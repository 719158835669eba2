"""Hosts use an interface for set-up traffic that other hosts cannot reach."""

import re
from collections.abc import Iterator

from nccl_inspect.event_types import BootstrapInterface, Event
from nccl_inspect.model.finding import Finding, NotJudged
from nccl_inspect.model.job import Notice
from nccl_inspect.rules.bootstrap_connect_refused import REFUSED, addresses, came_up, gave_up, of_one_link, retried
from nccl_inspect.rules.bootstrap_no_route import NO_ROUTE, interface
from nccl_inspect.rules.engine import Rule
from nccl_inspect.rules.facts import Facts, first_said, hosts_in, lines_of, listed, ranks_in, words_of
from nccl_inspect.rules.remedies import CHOOSE_INTERFACE

RULE = Rule(
    name="bootstrap-wrong-interface",
    category="bootstrap",
    severity="error",
    title="The interface for set-up traffic does not reach the other hosts",
    because=("env-mismatch-across-ranks",),
)
_OF_ONE_MACHINE = re.compile(
    r"docker|br-|veth|cni|virbr|lxc|lxdbr|podman|nerdctl|flannel|cali|cilium|weave|kube|tun|tap|wg|tailscale|"
    r"vmnet|vboxnet|dummy"
)
"""Bridges, ends of container links, overlays and tunnels: mostly made for traffic within one machine."""
_IPV4_ONLY = "NCCL_SOCKET_FAMILY=AF_INET   # IPv4 only: a link-local IPv6 address (fe80:) is of no use between hosts"
_LINK_LOCAL = ("169.254.", "fe80:", "[fe80:")


def judge(facts: Facts) -> Iterator[Finding | NotJudged]:
    """Judge interfaces of containers and tunnels, and addresses of one link, where connecting fails."""
    links = of_one_link(facts)
    if came_up(facts) or not (links or facts.several_hosts()):
        return  # it works, whatever its name is, or need not reach another host
    suspect = facts.said(BootstrapInterface, _is_suspect)
    failed = [*gave_up(facts, *REFUSED, *NO_ROUTE), *retried(facts, *REFUSED, *NO_ROUTE), *links]
    if links or (suspect and (failed or facts.job.ended_by)):
        yield _finding(facts, suspect, failed)
    elif suspect:
        yield RULE.undecided(
            f"the hosts start over {_words(suspect)}; whether they reach each other over it is not in the log",
            "the lines up to 'Init COMPLETE', to an error, or to the end of the job",
        )


def _finding(facts: Facts, used: list[Notice], failed: list[Notice]) -> Finding:
    named = facts.chosen("NCCL_SOCKET_IFNAME")
    link_local = bool(of_one_link(facts)) or any("fe80:" in interface(notice) for notice in used)
    return RULE.finding(
        f"set-up traffic uses {_words(used)}, which other hosts most likely cannot reach"
        if used
        else f"set-up traffic goes to {addresses(failed)}, which holds on one link only",
        cause=(f"{words_of(named)} names it" if named else "NCCL takes the first interface that is up, and found this")
        + (
            ": a link-local address holds on one link only, and the peer's names an interface of its own host"
            if link_local
            else ": a bridge or tunnel for containers, or an address that holds on one link only"
        ),
        impact="ranks cannot connect to each other: the job does not start",
        fix=[
            *([_IPV4_ONLY] if link_local else []),
            CHOOSE_INTERFACE,
            "ip -br addr   # on each host, inside the container: which interface do all share?",
        ],
        confidence="likely",
        ranks=ranks_in(used or failed),
        hosts=hosts_in(used or failed),
        evidence=[*first_said(used)[:3], *first_said(failed)[:2], *lines_of(named, 1)],
        fatal=True,
    )


def _is_suspect(event: Event) -> bool:
    if not isinstance(event, BootstrapInterface):
        return False
    return bool(_OF_ONE_MACHINE.match(event.interface)) or (event.address or "").startswith(_LINK_LOCAL)


def _words(used: list[Notice]) -> str:
    return listed(interface(notice) for notice in used)
