"""Hosts use an interface that other hosts cannot reach."""

from __future__ import annotations

from collections.abc import Iterator

from nccl_inspect.judging.connecting import (
    NO_ROUTE,
    REFUSED,
    addresses,
    failed_connections,
    has_built_communicator,
    has_error,
    is_connected,
    is_single_host,
    link_local_refused,
    peer,
    retried_connections,
)
from nccl_inspect.judging.engine import Facts, Notice, first_evidence
from nccl_inspect.judging.facts import evidence_of_settings, hosts_in, ranks_in
from nccl_inspect.judging.networks.fabrics import card_lists
from nccl_inspect.judging.networks.interfaces import (
    Interface,
    included_names,
    is_loopback,
    is_of_one_machine,
    is_unreachable_elsewhere,
    listed_interfaces,
    same_address,
)
from nccl_inspect.judging.page_words import Hit
from nccl_inspect.model.job import Setting
from nccl_inspect.util.wording import listed, some_names

_DOCKER = "172.17."
"""Docker's first bridge."""
_SOCKETS = ("Socket", "FastSocket")
"""Networks that use all interfaces."""


def find(facts: Facts) -> Iterator[Hit]:
    """Find addresses of failed connections, then interfaces used for bootstrap or data, that hosts do not share."""
    given_up = [*failed_connections(facts, *REFUSED, *NO_ROUTE), *link_local_refused(facts)]
    again = [] if is_connected(facts) else retried_connections(facts, *REFUSED, *NO_ROUTE)
    interfaces, ended_by = listed_interfaces(facts), facts.job.ended_by
    if lost := [notice for notice in (*given_up, *again) if _is_unroutable(facts, notice)]:
        used = [one for one in interfaces if one.is_of_one_machine or one.is_loopback]
        known = ["sure", *(["dead"] if ended_by or any(notice in given_up for notice in lost) else [])]
        yield _find(facts, used, lost, known, addresses(lost))
        return
    if is_connected(facts) or is_single_host(facts):
        return  # the interface works, or need not reach another host
    failed, is_built = [*given_up, *again], has_built_communicator(facts)
    for_setup = [one for one in interfaces if one.for_setup and not is_built]
    named = [] if is_built or interfaces else _settings_of_one_machine(facts)
    only_connections = failed or not (facts.job.failed or facts.errors(forced_ends=False))
    if used := _unreachable(facts, for_setup):
        known = ["failed"] if failed or ended_by else []
        known += ["dead"] if known and facts.spans_hosts() else []
        yield _find(facts, used, failed, [*known, *(["sure"] if known or same_address(used) else [])])
    elif _may_use_tcp(facts) and (used := [one for one in interfaces if one.is_of_one_machine]):
        unnamed = [notice for notice in failed if not peer(notice)]
        yield _find(facts, used, unnamed, ["for data", *(["failed", "sure"] if unnamed or ended_by else [])])
    elif named:
        yield Hit(known=("named", *(["sure"] if facts.spans_hosts() else [])), settings=named)
    elif only_connections and (used := [one for one in for_setup if one.is_ipoib]):
        known = ["failed"] if failed or ended_by else ["light"]
        yield _find(facts, used, failed, ["over InfiniBand", *known])


def _find(facts: Facts, used: list[Interface], failed: list[Notice], known: list[str], lost: str = "") -> Hit:
    """Return what is known about interfaces, or about the addresses of connections that are lost."""
    settings = facts.user_settings("NCCL_SOCKET_IFNAME")
    notices, words = [one.notice for one in used], listed((one.words for one in used), limit=2)
    good = {one.name for one in listed_interfaces(facts)} - {one.name for one in used} - {"lo"}
    address, hosts = next(iter(same_address(used).items()), ("", set[str]()))
    is_light = not (lost or "failed" in known or facts.spans_hosts())
    named = {
        "used": words,
        "lost": lost,
        "other": good.pop() if len(good) == 1 else "",
        "shared_address": address,
        "hosts": some_names(sorted(hosts)),
        "loops": any(is_loopback(peer(notice).partition("<")[0]) for notice in failed if lost),
        "Docker": any(one.address.startswith(_DOCKER) for one in used),
        "link-local": not used or any(one.is_link_local for one in used),
        "IPv6": "fe80:" in (lost or words),
        "light": is_light,
    }
    lines = [*first_evidence(notices)[:3], *first_evidence(failed)[:2], *evidence_of_settings(settings, 1)]
    who = notices or failed
    return Hit(who, named, known, ranks_in(who), hosts_in(who), lines, settings=settings, explains=failed)


def _is_unroutable(facts: Facts, notice: Notice) -> bool:
    """Whether a connection failed to an address that is valid only within one host or link.

    On a single host a refused loopback address belongs to a process that ended.
    """
    address = peer(notice)
    is_own = address.startswith("127.") and has_error(notice, REFUSED) and not facts.spans_hosts()
    return is_unreachable_elsewhere(address) and not is_own


def _unreachable(facts: Facts, used: list[Interface]) -> list[Interface]:
    """Return the interfaces that other hosts most likely cannot reach."""
    bridged = facts.spans_hosts()
    return [one for one in used if one.is_of_one_machine or (bridged and one.address.startswith(_DOCKER))]


def _may_use_tcp(facts: Facts) -> bool:
    """Whether data goes over TCP, or may as far as the log shows."""
    if net := facts.job.network.name:
        return net in _SOCKETS
    return not (card_lists(facts) or facts.plugin("NET", "loaded"))


def _settings_of_one_machine(facts: Facts) -> list[Setting]:
    """Return the settings that name an interface of one machine."""
    named = facts.user_settings("NCCL_SOCKET_IFNAME")
    return [setting for setting in named if any(map(is_of_one_machine, included_names(setting)))]
