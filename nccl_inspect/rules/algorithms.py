"""Algorithms, protocols and channels that NCCL lacks or may not use."""

from __future__ import annotations

from collections.abc import Iterator

from nccl_inspect.judging import cuda
from nccl_inspect.judging.check import Facts, Hit, value
from nccl_inspect.judging.ends import is_last
from nccl_inspect.judging.facts import evidence_of_settings, global_ranks, ranks_in
from nccl_inspect.judging.impact import MEASURED, NVLINK, Rate, current_rate
from nccl_inspect.judging.networks import efa_hints, is_google_network, may_be_google_network
from nccl_inspect.model.job import CommunicatorInfo, Selection, Setting
from nccl_inspect.util.patterns import compile_later
from nccl_inspect.util.wording import list_words

_CHOICES = ("NCCL_ALGO", "NCCL_PROTO")
_OF_LL = Rate(150, 150, "all-reduce of 1 GiB on 4 H200, LL", MEASURED)
_OF_ALL = Rate(354, 354, "the same by NCCL's own choice", MEASURED)


def algo_proto_forced(facts: Facts) -> Iterator[Hit]:
    """Find settings of the user; a plugin needs its own, such as NCCL_PROTO=simple of aws-ofi-nccl."""
    if unsafe := facts.errors_of_rule("algo-proto-forced"):
        yield Hit(unsafe, {"unsafe": True}, evidence=[*unsafe, *facts.user_settings("NCCL_PROTO")])
        return
    settings = facts.user_settings(*_CHOICES, "NCCL_NTHREADS", "NCCL_BUFFSIZE")
    # What aws-ofi-nccl may have set, in a process whose log does not show the plugin's start.
    started = {process for notice in facts.plugin("NET", "loading") for process in notice.processes}
    simple = [one for one in settings if (one.name, one.value) == ("NCCL_PROTO", "simple")]
    may_be = "Libfabric" in (facts.job.network.name or "Libfabric")
    if unclear := [one for one in simple if may_be and not started.issuperset(one.processes)]:
        yield Hit(named={"unclear": unclear})
    if forced := [setting for setting in settings if setting not in unclear]:
        yield _find_override(facts, forced)


def _find_override(facts: Facts, settings: list[Setting]) -> Hit:
    chosen = [
        one for one in settings if one.name in _CHOICES and "," not in one.value and not one.value.startswith("^")
    ]
    # Those that leave only one choice; with EFA that is NCCL_PROTO=simple anyway.
    narrow = [
        one for one in chosen if not (one.name == "NCCL_PROTO" and one.value.lower() == "simple" and efa_hints(facts))
    ]
    # Naming LL128 or only excluding others enables it, also on machines not known to have NVLink; by default NCCL does
    # so only where it was tested (src/graph/tuning.cc: 'may cause silent data corruption').
    has_nvlink = (facts.platform and facts.platform.nvlink) or facts.with_role("nvswitch")
    unchecked = [] if has_nvlink else [one for one in settings if any("LL128" in some for some in _protocols(one))]
    unsafe = unchecked if facts.paths("intra", "SHM") else []
    harmful: list[Setting] = []
    is_required = is_google_network(facts)
    is_perhaps_required = not is_required and bool(narrow) and not unsafe and may_be_google_network(facts)
    if is_required:
        narrow, unchecked = [], []
    elif is_perhaps_required:
        settings = narrow
    else:
        in_part = [setting for setting in narrow if setting.ranks is not None]
        harmful = [one for one in settings if one in unsafe or one in in_part or _leaves_only_ll(one)]
    named = {
        "chosen": settings,
        "shown": harmful or settings,
        "sources": list_words(setting.source for setting in settings),
        "narrow": narrow,
        "unchecked": unchecked,
        "harmful": harmful,
        "LL alone": any(map(_leaves_only_ll, harmful)),
        "ll": _OF_LL,
        "own": _OF_ALL,
        "required": is_required,
        "perhaps required": is_perhaps_required,
    }
    return Hit([], named, evidence=evidence_of_settings(harmful or settings), settings=settings)


def _leaves_only_ll(setting: Setting) -> bool:
    return setting.name == "NCCL_PROTO" and all(protocols == {"LL"} for protocols in _protocols(setting))


def _protocols(setting: Setting) -> Iterator[set[str]]:
    """Yield the protocols that NCCL_PROTO allows, for each of its parts: ``allreduce:ll;^ll128``."""
    for entry in setting.value.split(";") if setting.name == "NCCL_PROTO" else ():
        words = entry.rpartition(":")[2].upper()
        named = set(words.removeprefix("^").split(","))
        yield {"LL", "LL128", "SIMPLE"} - named if words.startswith("^") else named


def channel_limit_by_env(facts: Facts) -> Iterator[Hit]:
    """Find limits by effect: a communicator has exactly as many channels as the setting allows."""
    limits = facts.user_settings("NCCL_MAX_NCHANNELS", "NCCL_MAX_CTAS", "NCCL_MAX_NRINGS")
    limits = [setting for setting in limits if setting.value.isdigit() and int(setting.value) > 0]
    comms = [comm for comm in facts.job.communicators if comm.channels]
    if not limits or is_google_network(facts):
        return
    limited = [(setting, comm.id) for setting in limits for comm in comms if comm.channels == int(setting.value)]
    if limited or not comms:
        named = {"comms": [comm for _, comm in limited], "perhaps required": may_be_google_network(facts)}
        settings = [one for one in limits if not comms or any(one is setting for setting, _ in limited)]
        yield Hit([], named, settings=settings)


def collnet_unavailable(facts: Facts) -> Iterator[Hit]:
    """Find requests for CollNet: NCCL usually continues silently, but fails if NCCL_ALGO allows nothing else."""
    forced = [s for s in facts.user_settings("NCCL_ALGO") if "collnet" in s.value.lower() and "^" not in s.value]
    requests = [*facts.enabled_settings("NCCL_COLLNET_ENABLE"), *forced]
    stuck = [n for n in facts.notices("nccl/no-algorithm") if "collnet" in str(value(n, "settings")).lower()]
    refused = [*stuck, *facts.notices("nccl/collnet-unavailable")]
    searches = [] if facts.plugin("COLLNET", "loaded") else facts.plugin("COLLNET", "probe")
    searches = searches or ([] if facts.plugin("COLLNET", "loaded") else facts.plugin("NET", "not-found"))
    connected = facts.notices("nccl/collnet-connected", "nccl/collnet-chains")
    if refused or (requests and not connected and facts.spans_hosts()):
        notices = refused or searches[:2]
        named = {"requests": requests, "stuck": stuck, "likely": not refused and searches, "open": not notices}
        yield Hit(notices, named, evidence=[*notices[:3], *requests])


_LIMITS = ("NCCL_MAX_NCHANNELS", "NCCL_MAX_CTAS", "NCCL_MAX_NRINGS", "Max CTAs")
"""Settings, and the limit that a program sets in ncclConfig_t."""
_FEW = 4
"""NCCL's number over shared memory; between GPUs on an NVSwitch it uses 24 (A100 to H200, any number of them)."""
_BOARD = 8
"""This many GPUs that are all connected to each other have an NVSwitch."""
_LINKS = 12
"""Links of an A100; a GPU with all its links to every other GPU is on an NVSwitch."""


def few_channels(facts: Facts) -> Iterator[Hit]:
    """Find communicators on one host by their NVLinks, those over whole nodes by the number of NICs."""
    if facts.user_settings(*_LIMITS):
        return  # channel-limit-by-env judges settings, and the program's own limit is intended
    unknown: list[Hit] = []
    for comm in facts.job.communicators:
        paths = facts.paths_of(comm)
        if comm.channels is None or comm.nranks < 2 or not paths:
            continue
        named = {"channels": comm.channels, "comm": comm.id, "machine": facts.platform.name if facts.platform else ""}
        is_local = len(comm.hosts) == 1 and comm.nnodes in (None, 1)
        switched = is_local and _is_on_nvswitch(facts, comm, paths)
        if switched is None:
            unknown.append(Hit(named={**named, "unknown link": True}))
        elif switched or (nics := None if is_local else _nics(facts, comm, paths)):
            lines = [*comm.layout.channels(), *comm.evidence[:2], *paths.first_lines()[:2]]
            ranks = global_ranks(comm, range(comm.nranks))
            yield Hit([], named | {"nics": 0 if switched else nics}, ranks, comm.hosts, lines, paths)
            return
    yield from unknown[:1]


def _is_on_nvswitch(facts: Facts, comm: CommunicatorInfo, paths: Selection) -> bool | None:
    """Return whether the few channels of a communicator on one host join GPUs on an NVSwitch; None if unknown."""
    if (comm.channels or 0) > _FEW or any(kind.transport != "P2P" for kind in paths.kinds):
        return False
    classes = [kind.pair_class for kind in paths.kinds]
    if all(classes):
        return all(name is not None and name[2:].isdigit() and int(name[2:]) >= _LINKS for name in classes)
    machine = facts.platform
    if machine is None or (machine.nvlink is None and machine.nvlink_pairs is None):
        return None
    if not machine.nvlink:
        return False
    return None if machine.gpus is None else machine.gpus >= _BOARD


def _nics(facts: Facts, comm: CommunicatorInfo, paths: Selection) -> int | None:
    """Return the network devices of a node, if whole nodes have fewer channels than that.

    Plugins merge the NICs of one GPU into one device, so there are at most as many devices as GPUs.
    """
    machine = facts.platform
    if machine is None or machine.nics is None or machine.gpus is None or comm.channels is None:
        return None
    whole = comm.local_ranks == machine.gpus
    net = paths.where(lambda kind: kind.transport == "NET")
    slow = any(kind.net == "Socket" or kind.transport == "SHM" for kind in paths.kinds)
    devices = min(machine.nics, machine.gpus)
    return devices if whole and net and not slow and comm.channels < devices else None


def mnnvl_imex_not_working(facts: Facts) -> Iterator[Hit]:
    """Find NCCL's own statement, CUDA's refusal to import, GPUs that have not joined, and NET inside one domain."""
    stated = facts.notices("nccl/mnnvl-not-working", "rccl/rccl-mnnvl-not-working", "nccl/mnnvl-unsupported")
    # Hosts by NVLink domain: fabric UUID and clique; a UUID of zeros means none.
    domains: dict[tuple[object, ...], set[str]] = {}
    for notice in facts.notices("nccl/mnnvl-fabric"):
        uuid = value(notice, "uuid_high"), value(notice, "uuid_low")
        if any(str(half).strip("0") for half in uuid):
            domains.setdefault((*uuid, value(notice, "clique")), set()).update(notice.hosts)
    calls = cuda.failures(facts) if domains or facts.notices("nccl/mnnvl-clique") else []
    refused = [
        call for call in calls if call.code == cuda.NOT_PERMITTED and str(call.file).endswith("transport/p2p.cc")
    ]
    failed = [*stated, *(call.notice for call in refused)]
    service = facts.errors_of_rule("mnnvl-imex-not-working")
    over_net = facts.paths("inter", "NET")
    slow = over_net.where(lambda kind: bool(domains) and not any(also.transport == "P2P" for also in kind.also))
    slow = slow.filter_values(
        ("src_host", "dst_host"), lambda *joined: any(hosts.issuperset(joined) for hosts in domains.values())
    )
    machine = facts.platform
    on_rack = machine is not None and (machine.nvlink_domain or 0) > (machine.gpus or 0)
    if failed:
        asked = facts.user_settings("NCCL_MNNVL_ENABLE", "NCCL_MNNVL")
        yield Hit(failed, {"refused": not stated, "asked": asked})
    elif service:
        yield Hit(service, {"service": True})
    elif unready := domains and [
        line
        for line in facts.notices("nccl/mnnvl-fabric")
        if value(line, "state") in (1, 2)  # not started, in progress
    ]:
        named = {"unready": {host for line in unready for host in line.hosts}, "state": value(unready[0], "state")}
        yield Hit(unready, named)
    elif slow:
        off = [one for one in facts.settings("NCCL_MNNVL_ENABLE", "NCCL_CUMEM_ENABLE") if one.value == "0"]
        named = {"slow": True, "off": off, "net": current_rate(slow, machine), "nvlink": NVLINK[5], "refused": True}
        yield Hit(named=named, evidence=[*slow.first_lines()[:3], *off], paths=slow)
    elif machine and on_rack and over_net and not facts.notices("nccl/mnnvl-fabric"):
        yield Hit(named={"domain": machine.nvlink_domain, "pairs": len(over_net)})


_SETTING = compile_later(r"(NCCL_ALGO|NCCL_PROTO) was set to (.+?)\.(?= NCCL_|$)")
"""What 2.24 and later add (src/enqueue.cc); earlier releases used a ring where a setting did not fit."""


def no_algorithm(facts: Facts) -> Iterator[Hit]:
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
            "can": function,
        }
        yield Hit(failed, named)


def nvls_fabric_manager(facts: Facts) -> Iterator[Hit]:
    """Find failed multicast calls: 2.27 and 2.28 continue without NVLS, other releases stop.

    Also a log that ends where memory is bound to the multicast group, which waits for all ranks (transport/nvls.cc).
    """
    calls = [failure.notice for failure in cuda.failures(facts) if cuda.is_of_fabric(failure)]
    failed = [*calls, *facts.notices("nccl/nvls-bind-failed"), *facts.notices("nccl/multicast-fault")]
    given_up = facts.notices("nccl/nvls-bind-given-up")
    if notices := [*failed, *given_up]:
        beside = {rank for host in facts.job.hosts if ranks_in(given_up) & {*host.ranks} for rank in host.ranks}
        others = beside.intersection(facts.job.ranks_seen)
        yield Hit(
            notices,
            {
                "first_line": notices[0].message.splitlines()[0],
                "out of memory": {value(notice, "code") for notice in notices} == {cuda.OUT_OF_MEMORY},
                "alone": set() if failed else others - ranks_in(given_up),
            },
        )
    elif not (facts.job.going_on or facts.job.failed or facts.errors(forced_ends=False)):
        bound = facts.notices("nccl/nvls-bind")
        if last := [notice for notice in bound if any(is_last(facts, line) for line in notice.evidence)]:
            yield Hit(last, {"open": True})


def nvls_unavailable(facts: Facts) -> Iterator[Hit]:
    """Find NCCL's line on machines with Hopper or newer GPUs behind an NVSwitch, or '0 nvls channels' on request.

    GPUs report a fabric only behind an NVSwitch (2.20 on).
    """
    platform, without = facts.platform, facts.notices("nccl/nvls-not-available")
    local = [comm.local_ranks for comm in facts.job.communicators if comm.local_ranks is not None]
    models = ("H100", "H200", "GH200", "B200", "GB200", "B300", "GB300")
    has_model = platform is not None and bool(platform.nvlink) and platform.gpu in models
    has_nvswitch = has_model or bool(facts.notices("nccl/mnnvl-fabric"))
    if local and max(local) < 3:
        return  # NVLS needs three ranks on a host
    if without and has_nvswitch:
        yield Hit(without)
    elif not without and (has_nvswitch or platform is None or platform.gpu is None):
        algo = [one for one in facts.user_settings("NCCL_ALGO") if "NVLS" in one.value.upper() and "^" not in one.value]
        asked = [*algo, *(one for one in facts.user_settings("NCCL_NVLS_ENABLE") if one.value == "1")]
        if asked and (counted := facts.job.without_nvls):
            yield Hit(settings=asked, hosts=(), evidence=[*asked, *counted[:2]])


def symmetric_memory_unused(facts: Facts) -> Iterator[Hit]:
    """Find windows that were registered without effect, and a GIN that a setting asks for and no plugin provides."""
    if registered := facts.notices("nccl/symmetric-registration-unsupported"):
        stated = facts.notices("nccl/symmetric-unsupported")
        lacks = [name for name in ("cumem", "gin", "gdr") if any(value(notice, name) == 0 for notice in stated)]
        named = {"lacks": lacks, "stated": stated}
        yield Hit(registered, named, evidence=[*registered, *stated])
    asked = facts.user_settings("NCCL_GIN_TYPE", "NCCL_GIN_ENABLE")
    asked = [one for one in asked if one.value.lower() not in ("0", "-1", "none")]
    failed = facts.plugin("GIN", "failed")
    if asked and failed and not facts.plugin("GIN", "assigned", "initialised"):
        yield Hit(named={"asked": asked}, evidence=[*failed, *asked])
