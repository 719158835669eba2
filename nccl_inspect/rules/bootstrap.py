"""How ranks find each other, and what frameworks say of processes that others wait for."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from nccl_inspect.event.base import is_named
from nccl_inspect.event.types import ErrorCascade, NetDevices
from nccl_inspect.judging import exceptions, networks, transfers
from nccl_inspect.judging.check import Effects, Evidence, Facts, Hit, Notice, first_evidence, value
from nccl_inspect.judging.ends import ID_OF_ALL, has_ended, is_pasted
from nccl_inspect.judging.facts import cite_line, evidence_of_settings, hosts_in, is_before, ranks_concerned, ranks_in
from nccl_inspect.judging.life import is_still
from nccl_inspect.judging.statements import error_of, is_error, rank_prefix
from nccl_inspect.model.evidence import positions_in
from nccl_inspect.model.inventory import OVER_TCP
from nccl_inspect.util.grouping import group_sets, group_values
from nccl_inspect.util.patterns import compile_later
from nccl_inspect.util.wording import list_words, some_names

_BRIDGE = compile_later(r"172\.(?:1[7-9]|2\d|30)\.\d{1,3}\.\d{1,3}\b")
"""What Docker uses for its bridges first (default-address-pools), except 172.31, which clouds use for hosts."""


def unreachable(facts: Facts, *, kinds: Sequence[str]) -> Iterator[Hit]:
    """Find connections that NCCL gave up on, and those it was still retrying when the job or the log ended.

    They are ``refused``, or have no way to the address.
    """
    is_refused = "refused" in kinds
    errors = transfers.REFUSED if is_refused else transfers.NO_ROUTE
    failed = transfers.failed_connections(facts, *errors)  # to an address that means something to other hosts
    failed = [one for one in failed if not networks.is_link_local(transfers.peer(one))]
    again = transfers.retried_connections(facts, *errors)
    is_built = transfers.has_built_communicator(facts) or transfers.is_connected(facts)
    if is_built:  # some were made in the end, or the others are gone
        again = [] if facts.errors(forced_ends=False) else transfers.find_stuck(facts, again)
    if not failed and not again:
        return
    notices, tried = failed or again, [*failed, *again]
    is_over = bool(failed or facts.job.ended_by)
    is_late = any(map(transfers.is_late, again))
    wanted = {transfers.peer_address(notice) for notice in tried}
    owners = {host for address, host in transfers.hosts_by_address(facts).items() if address in wanted}
    bridges = (match[0] for one in notices if (match := _BRIDGE.search(transfers.addresses([one]))))
    named = {
        "where": transfers.addresses(tried) or "another rank",
        "owners": owners,
        "given up": failed,
        "over": is_over,
        "built": is_built,
        "open": not is_over and is_late,
        "starting": not is_over and not is_late,
        "forbidden": not is_refused and all(transfers.has_error(one, transfers.FORBIDDEN) for one in notices),
        "silent": all(transfers.has_error(notice, transfers.TIMED_OUT) for notice in notices),
        "error": next((error for error in errors if error in transfers.reason(notices[-1])), ""),
        "bridge": next(bridges, ""),
        **_compare_interfaces(facts),
    }
    yield Hit(notices, named, evidence=notices[-3:] if is_refused and not is_over else notices)


def connection_unanswered(facts: Facts) -> Iterator[Hit]:
    """Find connections that were up and got no answer, and the host that all of them have in common."""
    # A process that ended closed its connections, and its address may be gone soon after.
    gone = {transfers.peer_address(one) for one in facts.notices("nccl/socket-closed-by-peer")}
    failed = [one for one in transfers.unanswered_connections(facts) if transfers.peer_address(one) not in gone]
    if failed and not facts.is_over():
        owners = transfers.hosts_by_address(facts)
        peers = [transfers.peer_address(notice) for notice in failed]
        hub = transfers.find_hub(facts, failed)
        silent = set[str]() if transfers.is_building(facts) else transfers.silent_peers(facts, failed)
        if silent and hub not in silent:
            hub = None  # if its own network had failed, these would report it, too
        where = silent or ({hub} if hub else set())
        named = {
            "where": list_words(dict.fromkeys(peers)),
            "owners": {owners[peer] for peer in peers if peer in owners},
            "error": transfers.reason(failed[0]),
            "hub": hub,
            "silent": silent,
        }
        ranks = {rank for host in facts.job.hosts if host.name in where for rank in host.ranks}
        yield Hit(failed, named, ranks, where or named["owners"])


def _compare_interfaces(facts: Facts) -> dict[str, object]:
    """Return the interfaces where hosts chose different ones for the bootstrap, or list different ones for data."""
    listed = networks.listed_interfaces(facts)
    chosen = {f"{one.name} ({one.address or 'no address'})": one for one in listed if one.for_setup}
    ipv6 = [text for text, one in chosen.items() if ":" in one.address]
    ipv4 = [text for text, one in chosen.items() if one.address and text not in ipv6]
    names = {one.name for one in chosen.values()}
    for_data = group_sets((host, one.name) for one in listed if not one.for_setup for host in one.notice.hosts)
    alike = group_values((tuple(sorted(names)), host) for host, names in for_data.items())
    lists = [f"{list_words(names)} ({some_names(hosts)})" for names, hosts in alike.items()]
    return {
        "interfaces": list(chosen) if len(names) > 1 else lists if len(lists) > 1 else [],
        "IPv4": ipv4[-1:] if ipv6 else "",
        "IPv6": ipv6[-1:] if ipv4 else "",
    }


def bootstrap_no_interface(facts: Facts) -> Iterator[Hit]:
    """Find the warning of the rank itself; one of NET/Socket counts only if nothing connected in the end."""
    stated = facts.notices("nccl/bootstrap-no-interface")
    if not facts.job.paths:
        stated = [*stated, *facts.errors_of_rule("bootstrap-no-interface")]
    if notices := stated or networks.without_family(facts):
        where = {process for notice in notices for process in notice.processes}
        settings = [one for one in facts.settings("NCCL_SOCKET_IFNAME") if where & set(one.processes)]
        ranks, hosts = ranks_in(notices), hosts_in(notices)
        named = {"ranks": ranks, "hosts": some_names(sorted(filter(is_named, hosts))), "without family": not stated}
        yield Hit(notices, named, ranks, hosts, [*notices, *evidence_of_settings(settings)], settings=settings)
    elif garbled := facts.with_role("garbled-address"):
        listed = networks.listed_interfaces(facts)
        choosers = {process for interface in listed for process in interface.notice.processes}
        chosen = [one for one in facts.user_settings("NCCL_SOCKET_IFNAME") if networks.included_names(one)]
        if settings := [one for one in chosen if choosers.isdisjoint(one.processes)]:
            lines = [*evidence_of_settings(settings), *first_evidence(garbled)]
            yield Hit(named={"perhaps": True}, settings=settings, evidence=lines)


_DOCKER = "172.17."  # Docker's first bridge


def bootstrap_wrong_interface(facts: Facts) -> Iterator[Hit]:
    """Find addresses of failed connections, then interfaces used for bootstrap or data, that hosts do not share."""
    errors = *transfers.REFUSED, *transfers.NO_ROUTE
    given_up, again = transfers.failed_connections(facts, *errors), transfers.retried_connections(facts, *errors)
    interfaces = networks.listed_interfaces(facts)
    shared = networks.private_addresses(interfaces)
    if transfers.is_connected(facts):
        again = transfers.find_stuck(facts, again)
    failed, spans = [*given_up, *again], facts.spans_hosts()
    stuck = [*given_up, *transfers.find_stuck(facts, again)]
    private = [one for one in stuck if transfers.peer_address(one) in shared]
    if lost := [one for one in failed if _needs_another_host(facts, one) or one in private]:
        reached = shared.keys() & set(map(transfers.peer_address, lost))
        used = [one for one in interfaces if one.address in reached]
        used = used or [one for one in interfaces if one.is_of_one_machine or one.is_loopback]
        is_dead = bool(facts.job.ended_by) or any(notice in given_up for notice in lost)
        yield _find(facts, used, lost, {"lost": transfers.addresses(lost), "sure": True, "dead": is_dead})
        return
    if transfers.is_connected(facts) or networks.is_on_one_host(facts):
        return  # the interface works, or need not reach another host
    is_built = transfers.has_built_communicator(facts)
    has_failed = bool(failed or facts.job.ended_by)
    for_setup = [one for one in interfaces if one.for_setup and not is_built]
    for_data = [one for one in interfaces if one.is_of_one_machine] if _may_use_tcp(facts) else []
    chosen = [] if is_built or interfaces else facts.user_settings("NCCL_SOCKET_IFNAME")
    named = [setting for setting in chosen if any(map(networks.is_of_one_machine, networks.included_names(setting)))]
    is_other_error = not failed and (facts.job.failed or facts.errors(forced_ends=False))
    over_ib = [] if is_other_error else [one for one in for_setup if one.name.startswith("ib")]
    if used := [one for one in for_setup if one.is_of_one_machine or (spans and one.address.startswith(_DOCKER))]:
        is_sure = has_failed or bool(networks.same_address(used))
        yield _find(facts, used, failed, {"failed": has_failed, "sure": is_sure, "dead": has_failed and spans})
    elif for_data:
        unnamed = [notice for notice in failed if not transfers.peer(notice)]
        has_failed = bool(unnamed or facts.job.ended_by)
        yield _find(facts, for_data, unnamed, {"for data": True, "failed": has_failed, "sure": has_failed})
    elif named:
        yield Hit(named={"named": True, "sure": spans}, settings=named)
    elif over_ib:
        yield _find(facts, over_ib, failed, {"over InfiniBand": True, "failed": has_failed, "light": not has_failed})


def _needs_another_host(facts: Facts, failed: Notice) -> bool:
    """Return whether a connection went to an address that means another machine on each host.

    On a single host a refused loopback address belongs to a process that ended.
    """
    address = transfers.peer(failed)
    is_own = address.startswith("127.") and transfers.has_error(failed, transfers.REFUSED)
    return networks.is_unreachable_elsewhere(address) and (facts.spans_hosts() or not is_own)


def _may_use_tcp(facts: Facts) -> bool:
    """Return whether NCCL sends data over TCP; where it names no network, whether it may."""
    if net := facts.job.network.name:
        return net in OVER_TCP
    return not (networks.card_lists(facts) or facts.plugin("NET", "loaded"))


def _find(facts: Facts, used: list[networks.Interface], failed: list[Notice], known: dict[str, object]) -> Hit:
    """Return what is known about interfaces, or about the addresses of connections that are lost."""
    lost = str(known.get("lost", ""))
    settings = facts.user_settings("NCCL_SOCKET_IFNAME")
    notices = [one.notice for one in used]
    words = list_words((f"{one.name} ({one.address or 'no address'})" for one in used), limit=2)
    fit = [one for one in networks.listed_interfaces(facts) if not (one.is_of_one_machine or one.is_loopback)]
    good = {one.name for one in fit} - {one.name for one in used}
    address, hosts = next(iter(networks.same_address(used).items()), ("", set[str]()))
    peers = [transfers.peer_address(notice) for notice in failed if lost]
    named: dict[str, object] = {
        "used": words,
        "shared_address": address,
        "hosts": hosts,
        "loops": any(map(networks.is_loopback, peers)),
        "IPv6": "fe80:" in (lost or words),
        "other": good.pop() if len(good) == 1 else "",
        "Docker": any(one.address.startswith(_DOCKER) for one in used),
        "link-local": not used or any(networks.is_link_local(one.address) for one in used),
        "light": not (lost or known.get("failed") or facts.spans_hosts()),
    }
    lines = [*first_evidence(notices)[:3], *first_evidence(failed)[:2], *evidence_of_settings(settings, 1)]
    who = notices or failed
    return Hit(who, named | known, ranks_in(who), hosts_in(who), lines, settings=settings, explains=failed)


def loopback_between_hosts(facts: Facts) -> Iterator[Hit]:
    """Find the bootstrap interface and the devices of NET/Socket where the communicators span hosts."""
    setup = [one.notice for one in networks.listed_interfaces(facts) if one.for_setup and one.is_loopback]
    sockets = facts.with_event(NetDevices, lambda event: event.net == "Socket")
    data = [one for one in sockets if any(str(device[1]) == "lo" for device in getattr(one.event, "devices", ())[:1])]
    lo = [setting for setting in facts.settings("NCCL_SOCKET_IFNAME") if setting.value.lstrip("=").startswith("lo")]
    # NCCL excludes lo, which comes first, and docker's interfaces by default, but only if the user sets no list
    # (src/misc/socket.cc).
    lists = [one for one in facts.user_settings("NCCL_SOCKET_IFNAME") if one.value.startswith("^")]
    let_in = [one for one in lists if not any(map("lo".startswith, networks.listed_names(one.value)))]
    job, is_built = facts.job, transfers.has_built_communicator(facts)
    shown = [*first_evidence([*setup, *data])[:4], *evidence_of_settings(lo or let_in, 1)]
    named: dict[str, object] = {"lo": lo, "let_in": let_in, "list": let_in[0].value.removeprefix("^") if let_in else ""}
    if not facts.spans_hosts():
        if setup and let_in and not networks.is_on_one_host(facts) and not is_built:
            yield Hit(setup, named | {"one host": True}, evidence=shown)
    elif setup or data:
        over_tcp = facts.paths(transport="NET").exclude(facts.paths("intra"))
        carried = over_tcp.where(lambda kind: kind.nic == "lo")
        wide = [comm for comm in job.communicators if max(len(comm.hosts), comm.nnodes or 0) > 1]
        works = bool(carried) and any(comm.connected for comm in wide)
        is_over = job.failed or (bool(job.ended_by) and not job.paths)
        is_open = not is_over and not job.paths and facts.none_initialized(job.communicators)
        is_stuck = is_open and not job.excerpt  # or the log was cut there
        named |= {
            "works": works,
            "dead": (is_over or is_stuck) and not works,
            "certain": data and lo and not is_stuck,
        }
        yield Hit([*setup, *data], named, evidence=shown, paths=carried)
    elif lo and not is_built:
        yield Hit(named=named | {"unnamed interface": True}, settings=lo)


_CALLS = ("socket", "bind", "listen", "accept", "getsockname", "getsockopt", "setsockopt", "fcntl")
"""Those on sockets; others concern shared memory, files and threads."""


def bootstrap_failed(facts: Facts) -> Iterator[Hit]:
    """Find bootstrap errors, except those that only show that a peer is gone (see peer-death)."""
    is_built = transfers.has_built_communicator(facts)
    calls = [notice for notice in facts.notices("nccl/system-call-failed") if value(notice, "call") in _CALLS]
    lost = set(map(id, transfers.failed_connections(facts, *transfers.REFUSED, *transfers.NO_ROUTE)))
    connections = [notice for notice in transfers.failed_connections(facts) if id(notice) not in lost]
    system = [] if is_built else [*facts.with_role("socket-refused"), *calls]
    # For mixed-networks and bootstrap-no-interface.
    judged = set(map(id, [*networks.network_mismatches(facts), *networks.without_family(facts)]))
    errors = [*facts.errors_of_rule("bootstrap-failed"), *connections, *system]
    if errors := [notice for notice in errors if id(notice) not in judged]:
        named: dict[str, object] = {
            "working": is_built and not facts.job.failed,
            "other family": networks.NO_FAMILY in error_of(errors[0]),
        }
        comms = [comm for comm in facts.job.communicators if comm.parent is None and not comm.completed]
        by_size = group_values((comm.nranks, begin.process) for comm in comms for begin in comm.begins)
        if len(by_size) > 1 and "rank-counts-differ" in errors[0].roles:
            hosts = {size: sorted({process.host for process in some}) for size, some in by_size.items()}
            named["counts"] = [f"{size} on {list_words(names)}" for size, names in hosts.items()]
        yield Hit(errors, named, ranks=ranks_concerned(facts, errors, "rank"))
    elif not is_built and (frames := _find_frames(facts)):
        yield Hit(frames, {"frame": frames[-1].message.partition(" ->")[0]})


def _find_frames(facts: Facts) -> list[Notice]:
    """Find frames of the bootstrap, if no line says why it failed and none shows that the error reached the caller."""
    frames = facts.with_event(ErrorCascade)
    files = [frame.event.file.rpartition("/")[2] for frame in frames if isinstance(frame.event, ErrorCascade)]
    codes = {frame.event.code for frame in frames if isinstance(frame.event, ErrorCascade)}
    # What sockets return if the program aborts the communicator that waits for them (src/misc/socket.cc).
    set_up = ("bootstrap.",) if codes == {3} else ("bootstrap.", "socket.")
    # A frame of one of these files means that the error reached NCCL's caller, which reports it as well.
    callers = ("init.", "group.", "enqueue.", "collectives.")
    is_judged = (
        any(notice.level == "WARN" for notice in facts.job.notices)
        or any(comm.completed for comm in facts.job.communicators)
        or facts.errors(forced_ends=False)
        or any(file.startswith(callers) for file in files)
    )
    return frames if not is_judged and any(file.startswith(set_up) for file in files) else []


def communicator_id_stale(facts: Facts) -> Iterator[Hit]:
    """Find ranks that build a communicator with the id of an earlier run, which nobody answers any more."""
    if facts.settings("NCCL_COMM_ID"):
        return  # the same in all runs
    size = max((comm.nranks for comm in facts.job.communicators), default=0)
    comms = [comm for comm in facts.job.communicators if comm.nranks == size and not comm.parent]
    others = {rank for comm in comms if not comm.reused_id for rank in comm.started}
    for comm in comms:
        if comm.reused_id and not (comm.completed or comm.connected):
            new = others.difference(comm.started)
            sure = "certain" if new or 0 not in comm.started else "possible"  # it may be a fixed id that is not printed
            named = {"who": {*comm.started}, "id": comm.reused_id, "others": new}
            yield Hit(named=named, ranks=comm.started, hosts=comm.hosts, evidence=comm.evidence, confidence=sure)


def rank_given_twice(facts: Facts) -> Iterator[Hit]:
    """Find ranks that processes of two hosts have in one communicator."""
    comms = [comm for comm in facts.job.communicators if comm.contested]
    begins = [begin for comm in comms for begin in comm.begins if begin.member in comm.contested]
    if begins:
        hosts = sorted({begin.process.host for begin in begins})
        nobody = set(range(comms[0].nranks)).difference(*(comm.started for comm in comms))
        named = {"who": {begin.member for begin in begins}, "hosts": hosts, "nobody": nobody}
        places = {(begin.source, begin.order) for begin in begins}
        evidence = [line for comm in comms for line in comm.evidence if line.position in places]
        is_of_one = not facts.settings("NCCL_COMM_ID") and 0 not in nobody  # else these may be jobs, or runs, of one id
        sure = "certain" if is_of_one else "possible"
        yield Hit(named=named, ranks=(), hosts=hosts, evidence=evidence, confidence=sure)


_GROUP = compile_later(r"/default_pg/0//(\w{1,64})//cuda")
"""The group, other than that of all ranks, to which a key of the store belongs."""
_LISTEN, _JOIN, _BARRIER = "torch/store-listen-failed", "torch/store-join-timeout", "torch/store-barrier-timeout"
_UNREACHED = ("torch/store-connect-timeout", "torch/store-unreachable", "torch/store-name-unresolved")
_STORE_ERRORS = (_LISTEN, _JOIN, *_UNREACHED)
"""Those to show first, in this order."""
_AFTER_THE_END = {"torch/rendezvous-closed", "torch/store-closed", "torch/store-lost"}
"""While NCCL is up, these follow from an end that may not be in this log."""


def rendezvous_failed(facts: Facts) -> Iterator[Hit | Effects]:
    """Find PyTorch's errors about its store; those before a communicator came up no longer matter."""
    errors = [notice for notice in facts.with_role("store-failed") if is_error(notice)]
    if not errors:  # where PyTorch gave up, and no longer tries again
        errors = [one for one in facts.notices("torch/store-name-unresolved") if "DistNetworkError: " in one.message]
    waits = facts.notices("torch/store-waits", "torch/store-name-unresolved", "torch/store-connect-failed")
    waits = waits if not errors and not facts.job.last_lines else []
    if is_still(facts, waits):
        yield Hit(waits[-1:], {**_place_of_store([]), "still": True}, ranks=(), hosts=(), evidence=waits)
    communicators = facts.job.communicators if errors else ()
    begins = [comm.evidence[0] for comm in communicators if comm.completed and comm.evidence]
    here = (error for error in errors if not exceptions.is_of_another(facts, error.evidence[0]))
    before = [error for error in here if any(is_before(error.evidence[0], begin) for begin in begins)]
    yield Effects(before)  # a later attempt succeeded
    errors = [error for error in errors if error not in before and not (begins and error.production in _AFTER_THE_END)]
    if errors:
        yield _find_store_failure(facts, errors, begins)


def _find_store_failure(facts: Facts, errors: list[Notice], begins: list[Evidence]) -> Hit:
    """Return what is known about errors of the store, and about who did not come to it."""
    connecting = [error for error in errors if error.production in _UNREACHED]
    waiting = [error for error in errors if error.production == "torch/store-wait-timeout"]
    keys = [str(value(error, "key")) for error in waiting]
    of_nccl = [key for key in keys if "cuda//" in key or "ncclUniqueId" in key]
    groups = dict.fromkeys(match[1] for error in errors if (match := _GROUP.search(error.message)))
    unresolved = facts.notices("torch/store-name-unresolved") if connecting else []
    failed = facts.notices("torch/store-connect-failed") if connecting else []  # else a later attempt succeeded
    bound = facts.notices("torch/store-bind-failed", _LISTEN)  # tries that precede the exception name the reason too
    # The last exception that is of no rank may have ended the missing process.
    lines = positions_in(line for error in errors for line in error.evidence)
    loose = [one for one in exceptions.exceptions_of(facts).loose if not one.is_loss_of_peer]
    loose = [one for one in loose if one.line.position not in lines]
    ranks = _labels(errors)
    missing = _find_missing(errors, _labels(error for error in errors if error not in connecting))
    # All wait for the id that rank 0 makes for the group of all ranks: it is the one to look at.
    awaited = {0} - ranks if all(error.message.endswith(ID_OF_ALL) for error in errors) else set[int]()
    if any(error.production == _BARRIER for error in errors) or all(_GROUP.search(error.message) for error in errors):
        ranks = set()  # they wait for others, whom nobody names
    named = {
        "missing": missing,
        "begun": begins,
        "keys": keys,
        "of NCCL": len(waiting) < len(errors) or of_nccl,
        "groups": " and of ".join(groups),
        "taken": any("EADDRINUSE" in one.message or "already in use" in one.message for one in bound),
        "places": [f"{value(error, 'address')}:{value(error, 'port')}" for error in connecting],
        "unresolved": next((value(notice, "error") for notice in unresolved), None),
        "refusal": ", ".join(sorted({str(value(notice, "error")) for notice in failed})),
        "raised": f"{loose[-1].text} ({cite_line(loose[-1].line)})" if loose else "",
        **_place_of_store(connecting),
    }
    first = [error for production in _STORE_ERRORS for error in errors if error.production == production]
    return Hit(errors, named, missing or awaited or ranks, (), [*first, *errors])


def _labels(errors: Iterable[Notice]) -> set[int]:
    """Return the ranks in front of these lines."""
    return {rank for error in errors if (rank := rank_prefix(error)) is not None}


def _find_missing(errors: list[Notice], ranks: set[int]) -> set[int]:
    """Return the ranks that did not come, if all that did are known: they complain, and rank 0 has the store."""
    counted = [error for error in errors if error.production in (_JOIN, _BARRIER)]
    complaining = ranks | {int(value(error, "rank")) for error in counted if error.production == _BARRIER}
    came = complaining | {0 for error in counted if error.production == _JOIN}
    present = max((int(value(error, "present")) for error in counted), default=0)
    expected = max((int(value(error, "expected")) for error in counted), default=0)
    if not (counted and complaining) or len(came) != present or expected > 1 << 17:  # more than a job has
        return set()
    return set(range(expected)) - came


def _place_of_store(errors: list[Notice]) -> dict[str, object]:
    """Return address and port of the store for a shell: from the log, if there is exactly one, else the variables."""
    places = {(str(value(error, "address")), str(value(error, "port"))) for error in errors}
    address, port = map(shlex.quote, places.pop()) if len(places) == 1 else ("$MASTER_ADDR", "$MASTER_PORT")
    return {"server": address, "server_port": port}


def torch_call_refused(facts: Facts) -> Iterator[Hit | Effects]:
    """Find the exceptions, unless the program continued."""
    notices = facts.errors_of_rule("torch-call-refused")
    fatal = exceptions.exceptions_of(facts).fatal
    caught = [
        notice
        for notice in notices
        if not (has_ended(facts, notice) or is_pasted(facts, notice))
        or (id(notice) not in fatal and exceptions.continues(facts, None, notice))
    ]
    yield Effects(caught)
    kinds = group_values((notice.production, notice) for notice in notices if notice not in caught)
    for some in kinds.values():
        ranks = {value(one, name) for one in some for name in ("global_rank", "rank")} - {None}
        odd = _find_odd_models(some) if some[0].production == "torch/models-differ" else set[int]()
        some.sort(key=lambda one: value(one, "rank") not in odd)  # what an odd one itself says comes first
        sure = None if any(has_ended(facts, one) for one in some) else "possible"
        yield Hit(some, {"odd": odd}, ranks=odd or ranks, hosts=(), confidence=sure)


def _find_odd_models(stated: list[Notice]) -> set[int]:
    """Return the ranks whose models have another number of parameters than most."""
    told = {int(value(one, "other_rank")): value(one, "other_params") for one in reversed(stated)}
    own = {int(value(one, "rank")): value(one, "params") for one in stated}
    counts = told | own
    (usual, number), *_ = Counter(counts.values()).most_common(1)
    return {rank for rank, count in counts.items() if count != usual} if 2 * number > len(counts) else set()
