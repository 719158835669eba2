"""Findings settled by files from machines: faults of ports, modules, limits and GPUs that concern the job.

Each function finds sightings of one kind. ``faults.toml`` has the findings that they explain: if a file shows a fault
on a host of such a finding, the finding takes its words, its fix and its line. If the log shows no effect, most faults
are ignored; those that are sure to affect NCCL become clues of the rule that the fault names.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

from nccl_inspect.artifacts.tools import Item, Report, number
from nccl_inspect.event.types import NetDevices
from nccl_inspect.judging import networks, remedies
from nccl_inspect.judging.check import Hit
from nccl_inspect.judging.facts import Facts, cite_line, once
from nccl_inspect.judging.remedies import COMMENT
from nccl_inspect.model.evidence import Evidence, positions_in
from nccl_inspect.model.finding import Finding
from nccl_inspect.model.job import Notice
from nccl_inspect.topology import bus_number
from nccl_inspect.util.grouping import group_sets, group_values
from nccl_inspect.util.records import Frozen
from nccl_inspect.util.wording import list_words

CERTAIN, LIKELY = "certain", "likely"
_ORDER = (CERTAIN, LIKELY, "possible")
_MAX_LINES = 5
_NIC = "<NIC>"
_OWN_LINES = 3  # lines of the log that a settled finding keeps as evidence
_FAULTS = Path(__file__).with_name("faults.toml")
MIB, GIB = 1 << 20, 1 << 30
_UP = {"ACTIVE", ""}
_LINKED = {"LINKUP", ""}
_FEWEST_INODES = 16  # files that a rank may have to create
_SHM = "/dev/shm"  # noqa: S108 - it is not opened


class Sighting(Frozen):
    """A fault seen on a machine."""

    words: str  # the fault, for the middle of a sentence
    host: str | None  # None if the host of the file is unknown
    evidence: Evidence
    part: str = ""  # the name of the NIC concerned, if any: statements about other NICs are unrelated
    ranks: tuple[int, ...] = ()  # the ranks that use the GPU concerned, if any
    is_in_use: bool = True  # whether the job is known to use the NIC: otherwise it only counts if a line names it


def items(facts: Facts, *parts: str) -> list[tuple[str, Item]]:
    """Return the items of such parts, with the names of their files."""
    return [entry for part in parts for entry in _by_part(facts).get(part, ())]


@once
def _by_part(facts: Facts) -> dict[str, list[tuple[str, Item]]]:
    reports = [(one.name, one.value) for one in facts.job.artifacts if isinstance(one.value, Report)]
    return group_values((item.part, (name, item)) for name, report in reports for item in report.items)


def sighting(
    name: str, item: Item, words: str, part: str = "", ranks: Iterable[int] = (), *, is_in_use: bool = True
) -> Sighting:
    """Create a sighting from an item of a file; ``words`` are the fault, without the host."""
    return Sighting(words, item.host, Evidence(name, item.line, item.text), part, tuple(ranks), is_in_use)


@once
def cards_in_use(facts: Facts) -> dict[str, set[str]]:
    """Return the InfiniBand and RoCE cards that NCCL lists on each host."""
    return group_sets(
        (host, part)
        for notice in facts.with_event(NetDevices, lambda event: event.net == "IB")
        for host in notice.hosts
        for device in getattr(notice.event, "devices", ())
        for part in (str(device[1]).split("+") if len(device) > 1 else ())
    )


def _is_down(item: Item) -> bool:
    return item.values.get("state", "") not in _UP or item.values.get("physical", "") not in _LINKED


def ports_down(facts: Facts, *, listed: bool) -> Iterator[Sighting]:
    """Yield ports that are down.

    Args:
        listed: those that NCCL listed at the start, all if the log has no list; else those that it does not list, if
            other hosts list them or all ports of the host are down.
    """
    in_use, ports = cards_in_use(facts), items(facts, "port")
    elsewhere = set[str]().union(*in_use.values())
    alive = {item.host for _, item in ports if not _is_down(item)}
    for name, item in ports:
        own, physical = in_use.get(item.host or ""), str(item.values.get("physical", ""))
        more = "" if physical in _LINKED else f" (physical state {physical.capitalize()})"
        state = str(item.values.get("state", "")).capitalize()
        words = f"{item.name} port {item.values['port']} is {state}{more}"
        if not _is_down(item):
            continue
        if listed and (own is None or item.name in own):
            yield sighting(name, item, words, item.name, is_in_use=own is not None)
        elif not listed and item.name not in (own or ()) and (item.name in elsewhere or item.host not in alive):
            yield sighting(name, item, words)


def ports_slow(facts: Facts) -> Iterator[Sighting]:
    """Ports in use with a lower rate than most of their kind."""
    in_use = cards_in_use(facts)
    used = [
        (name, item)
        for name, item in items(facts, "port")
        if not _is_down(item) and item.values.get("rate") and item.name in in_use.get(item.host or "", ())
    ]
    for name, item, usual in _find_lower(used, "rate", "model", "layer"):
        words = f"{item.name} runs at {item.values['rate']:g} Gb/s, and others of its kind at {usual:g}"
        yield sighting(name, item, words, item.name)


def _find_lower(entries: Sequence[tuple[str, Item]], key: str, *kind: str) -> Iterator[tuple[str, Item, float]]:
    """Yield items with a lower value than most of their kind, with the value of these."""
    alike = [(tuple(map(item.values.get, kind)), item.values[key]) for _, item in entries]
    counts = {kind: Counter(values) for kind, values in group_values(alike).items()}
    for (name, item), (own, value) in zip(entries, alike, strict=True):
        usual, number = max(counts[own].items(), key=lambda entry: (entry[1], entry[0]))
        if value < usual and counts[own][value] < number:
            yield name, item, usual


def gids_missing(facts: Facts) -> Iterator[Sighting]:
    """Yield NICs in use without RoCE v2 and an IPv4 address in the configured row of the GID table, else in any row."""
    chosen = {s.value for s in facts.user_settings("NCCL_IB_GID_INDEX") if s.value.isdigit()}
    index = int(chosen.pop()) if len(chosen) == 1 else None
    in_use = cards_in_use(facts)
    rows = group_values(
        ((name, item.host, item.name, item.values["port"]), item)
        for name, item in items(facts, "gid")
        if not in_use.get(item.host or "") or item.name in in_use[item.host or ""]
    )
    for (name, _, card, _), table in rows.items():
        good = [row.values["index"] for row in table if row.values["ipv4"] and row.values["version"] in ("v2", "v2.0")]
        wrong = next((row for row in table if row.values["index"] == index), table[0])
        advice = f"; rows {', '.join(map(str, good))} are" if good else "; no row is"
        if index is not None and index not in good:
            words = f"row {index} of the GID table of {card} is not RoCE v2 with an IPv4 address{advice}"
            yield sighting(name, wrong, words, card)
        elif not good:
            yield sighting(name, wrong, f"the GID table of {card} has no row of RoCE v2 with an IPv4 address", card)


def find_absent(facts: Facts, part: str, names: list[str], words: str, *, against: bool = False) -> Iterator[Sighting]:
    """Yield hosts without any of these kernel modules or providers; as evidence against that, those that have one."""
    present = [(name, item) for name, item in items(facts, part) if item.name in names]
    if against:
        yield from (sighting(name, item, f"the {part} {item.name} is present") for name, item in present)
        return
    there = {(name, item.host) for name, item in present}
    for name, item in items(facts, "list"):
        if item.name == part and (name, item.host) not in there:
            yield sighting(name, replace(item, text=f"{item.text}; no {part} {' or '.join(names)}"), words)


def find_limits(
    facts: Facts, limit: str, least: int, unit: int, words: str, no_limit: str = "", *, against: bool = False
) -> Iterator[Sighting]:
    """Yield hosts with a limit that is too low, which ``unit`` divides; as evidence against that, those without it."""
    for name, item in items(facts, "limit"):
        value = item.values["value"] if item.name == limit else least
        if against and value is None:
            yield sighting(name, item, no_limit)
        elif not against and value is not None and value < least:
            yield sighting(name, item, words.format(value // unit))


def shared_memory(facts: Facts, *, against: bool = False) -> Iterator[Sighting]:
    """Yield hosts and containers whose /dev/shm is small or full; as evidence against that, those where it has room."""
    inodes = [(name, item) for name, item in items(facts, "inodes") if item.name == _SHM]
    # Some file systems do not count them.
    without = [(n, one) for n, one in inodes if one.values["size"] and one.values["free"] < _FEWEST_INODES]
    for name, item in () if against else without:
        yield sighting(name, item, f"{_SHM} has {item.values['free']} of {item.values['size']:,} inodes free")
    full = {item.host for _, item in without}
    for name, item in items(facts, "filesystem"):
        size, free = item.values["size"], item.values["free"]
        is_small = size < GIB or free < 64 * MIB
        if item.name == _SHM and item.host not in full and is_small is not against:
            yield sighting(name, item, f"{_SHM} has {_size(size)}, {_size(free)} of it free")


def _size(size: int) -> str:
    return f"{size / GIB:.3g} GiB" if size >= GIB else f"{size / MIB:.3g} MiB"


def rank_of(facts: Facts, host: str | None, bus_id: str | None, index: int | None) -> tuple[int, ...]:
    """Return the ranks on a host that use a GPU, given by its bus id or else its index."""

    def number_of(bus_id: str) -> object:  # an Xid omits the function: 0000:18:00 is 0000:18:00.0
        return bus_number(bus_id if "." in bus_id or ":" not in bus_id else f"{bus_id}.0")

    wanted = number_of(bus_id) if bus_id else None
    ranks = sorted(rank for one in facts.job.hosts if one.name == host for rank in one.ranks)
    gpus = [(rank, gpu) for rank in ranks if (gpu := facts.job.gpus.get(rank))]
    if wanted is None:
        return tuple(rank for rank, gpu in gpus if index is not None and gpu.nvml_dev == index)
    return tuple(rank for rank, gpu in gpus if gpu.bus_id and number_of(gpu.bus_id) == wanted)


def _select_gpu(facts: Facts, name: str, item: Item, words: str) -> Iterator[Sighting]:
    """Yield the fault of a GPU if ranks use it, or if its host is unknown."""
    ranks = rank_of(facts, item.host, item.values.get("bus_id"), item.values.get("index"))
    if ranks or not item.host:
        yield sighting(name, item, words, ranks=ranks)


def gpu_values(facts: Facts, paths: list[str], bad: str, words: str) -> Iterator[Sighting]:
    """Yield GPUs of ranks with a bad value in ``nvidia-smi -q``; ``paths`` are suffixes of the headings and keys."""
    for part, entries in _by_part(facts).items():
        for name, item in entries if part.startswith("gpu ") and part.endswith(tuple(paths)) else ():
            value = item.values["value"]
            if re.fullmatch(bad, value):
                text = words.format(gpu=item.name, key=part.rpartition("/")[2], value=value)
                yield from _select_gpu(facts, name, item, text)


def pcie_narrow(facts: Facts) -> Iterator[Sighting]:
    """GPUs of ranks with fewer PCIe lanes than the other GPUs."""
    widths = [
        (name, replace(item, values={**item.values, "lanes": lanes}))
        for name, item in items(facts, "gpu PCI/GPU Link Info/Link Width/Current")
        if (lanes := number(item.values["value"]))
    ]
    for name, item, usual in _find_lower(widths, "lanes"):
        words = f"GPU {item.name} has {item.values['lanes']:g} PCIe lanes, and others have {usual:g}"
        yield from (seen for seen in _select_gpu(facts, name, item, words) if seen.ranks)


@once
def _active_links(facts: Facts) -> list[tuple[str, Item]]:
    """Return the GPUs with the number of their active links, each at the last line of an inactive one."""
    gpus: dict[tuple[str, str | None, str], Item] = {}
    for name, item in items(facts, "nvlink"):
        if "active" in item.values:
            known = gpus.get((name, item.host, item.name))
            shown = item if known is None or not item.values["active"] else known
            links = item.values["active"] + (known.values["links"] if known else 0)
            gpus[name, item.host, item.name] = replace(shown, values={**shown.values, "links": links})
    return [(name, item) for (name, *_), item in gpus.items()]


def nvlinks_down(facts: Facts) -> Iterator[Sighting]:
    """GPUs with fewer active NVLinks than most GPUs of the job."""
    for name, item, usual in _find_lower(_active_links(facts), "links"):
        links = item.values["links"]
        words = f"{usual - links:g} NVLinks of {item.name} are inactive, and {links} are active"
        yield from _select_gpu(facts, name, item, words)


def nvlinks_off(facts: Facts) -> Iterator[Sighting]:
    """Machines without any active NVLink."""
    for gpus in group_values(((entry[0], entry[1].host), entry) for entry in _active_links(facts)).values():
        if not any(item.values["links"] for _, item in gpus):
            yield sighting(*gpus[0], "no NVLink of any GPU is active")


def nvlink_errors(facts: Facts) -> Iterator[Sighting]:
    """GPUs of ranks with recovery or fatal errors of NVLinks."""
    for name, item in items(facts, "nvlink"):
        if item.values.get("errors") and str(item.values["kind"]).lower() in ("recovery", "fatal"):
            yield from _select_gpu(facts, name, item, f"NVLinks had errors ({item.text})")


def grown_counters(facts: Facts, counters: str) -> Iterator[Sighting]:
    """Yield NICs with such counters that grew from one file to the other: they only grow, so values order files."""
    cards = cards_in_use(facts)
    by_port: dict[tuple[str | None, str, str], dict[str, dict[str, Item]]] = {}
    for name, item in items(facts, "counter"):
        file = by_port.setdefault((item.host, item.name, item.values["port"]), {}).setdefault(name, {})
        file.setdefault(item.values["counter"], item)
    for (host, card, _), files in by_port.items():
        in_use = cards.get(host or "")
        if len(files) < 2 or (in_use and card and card not in in_use and not card.startswith(("eth", "en", "ib"))):
            continue
        ordered = sorted(files.items(), key=lambda entry: sum(item.values["value"] for item in entry[1].values()))
        (_, first), (name, last) = ordered[0], ordered[-1]
        grew = {
            counter: (item, item.values["value"] - first[counter].values["value"])
            for counter, item in last.items()
            if counter in first
        }
        if any(change < 0 for _, change in grew.values()):
            continue  # reset in between
        bad = {counter: (item, by) for counter, (item, by) in grew.items() if by and re.fullmatch(counters, counter)}
        if bad:
            item, by = next(iter(bad.values()))
            words = list_words([f"{counter} by {change}" for counter, (_, change) in bad.items()], limit=3)
            shown = replace(item, text=f"{item.text} ({item.values['value'] - by} before)")
            yield sighting(name, shown, f"{card or 'a NIC'} counted errors ({words})", card)


_FINDERS: dict[str, Callable[..., Iterator[Sighting]]] = {
    find.__name__: find
    for find in (
        *(ports_down, ports_slow, gids_missing, grown_counters),
        *(find_absent, find_limits, shared_memory),
        *(gpu_values, pcie_narrow, nvlinks_down, nvlinks_off, nvlink_errors),
    )
}
"""By the names in the table of faults."""


class Fault(Frozen):
    """A possible fault of a machine."""

    find: Callable[..., Iterator[Sighting]]
    explains: Mapping[str, str]  # rules whose findings it explains, each with the confidence
    fix: tuple[str, ...]
    has_opposite: bool = False  # whether the function also finds evidence against the fault
    where_it_hurts: bool = True
    """Whether only hosts of the finding count; otherwise any host, such as the other end of a transfer."""
    unless: str = ""  # a pattern in the lines of findings that have another reason
    clue: str = ""  # the rule that reports it if it explains no finding; empty for none
    costs: str = ""  # the impact, for a clue


@cache
def _load_faults() -> list[Fault]:
    """Return the faults of the table; ``@NAME`` is one of its lists, or a step that several rules share."""
    import tomllib  # few logs have files beside them

    table = tomllib.loads(_FAULTS.read_text(encoding="utf-8"))

    def expand(given: list[str]) -> Iterator[str]:
        for one in given:
            yield from table["lists"].get(one[1:] if one.startswith("@") else "") or [remedies.look_up(one)]

    return [
        Fault(
            partial(_FINDERS[fault.pop("find")], **fault.pop("of", {})),
            {rule: sure for sure in (CERTAIN, LIKELY) for rule in expand(fault.pop(sure, []))},
            tuple(expand(fault.pop("fix"))),
            **fault,
        )
        for fault in table["faults"]
    ]


@once
def sightings(facts: Facts) -> list[tuple[Fault, list[Sighting]]]:
    """Return the sightings in files of this job's machines, by fault."""
    return [(fault, list(fault.find(facts))) for fault in _load_faults()] if facts.job.artifacts else []


def find_clues(facts: Facts, rule: str) -> Iterator[Hit]:
    """Find faults without an effect in the log, each once for all machines."""
    for fault, candidates in sightings(facts):
        seen = [sighting for sighting in candidates if sighting.is_in_use]
        if fault.clue == rule and seen:
            named = {
                "file": _words(seen),
                "lines": _cite_lines(seen),
                "costs": fault.costs,
                "steps": [step.replace(_NIC, seen[0].part or _NIC) for step in fault.fix],
            }
            ranks = {rank for sighting in seen for rank in sighting.ranks}
            yield Hit([], named, ranks, {one.host for one in seen}, [one.evidence for one in seen])


def settle(facts: Facts, findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings, settled by the files, without clues about faults that explain another finding."""
    findings = list(findings)
    if not sightings(facts):
        return findings
    used: list[Sighting] = []
    results = [_settle_finding(facts, finding, used) for finding in findings]
    lines = positions_in(one.evidence for one in used)
    rules = {fault.clue for fault, _ in sightings(facts) if fault.clue}
    return [finding for finding in results if finding.rule not in rules or not positions_in(finding.evidence) <= lines]


def _settle_finding(facts: Facts, finding: Finding, used: list[Sighting]) -> Finding:
    """Return a finding with the first fault that certainly explains it, else the first that likely does."""
    found: list[tuple[str, Fault, list[Sighting]]] = []
    for fault, seen in sightings(facts):
        if (
            finding.rule in fault.explains
            and _may_explain(facts, finding, fault)
            and (fitting := _related_sightings(facts, finding, fault, seen))
        ):
            found.append((_confidence(facts, finding, fault, fitting), fault, fitting))
    if not found:
        return _doubt_finding(facts, finding)
    sure, fault, seen = min(found, key=lambda one: _ORDER.index(one[0]))
    used += seen
    proof, is_sure = f"{_words(seen)} ({_cite_lines(seen)})", sure == CERTAIN
    part = next((sighting.part for sighting in seen if sighting.part), _NIC)
    steps = [step.replace(_NIC, part) for step in fault.fix]
    commands = {step.partition(COMMENT)[0] for step in steps}
    others = [step for step in finding.fix if step.partition(COMMENT)[0] not in commands]
    own = finding.evidence[: max(_OWN_LINES, _MAX_LINES - len(seen))]
    ranks = {rank for sighting in seen for rank in sighting.ranks if is_sure}
    return finding.with_fields(
        cause=proof if is_sure else f"likely: {proof}. Otherwise: {finding.cause}",
        fix=steps if is_sure and steps else [*steps, *others],
        confidence=min(finding.confidence, LIKELY if finding.clue else sure, key=_ORDER.index),
        hosts=sorted({*finding.hosts, *(sighting.host for sighting in seen if sighting.host)}),
        ranks=sorted(ranks.union(finding.ranks)),
        evidence=[*own, *(sighting.evidence for sighting in seen)][:_MAX_LINES],
    )


def _doubt_finding(facts: Facts, finding: Finding) -> Finding:
    """Return a finding with evidence against its cause from all its hosts; the file may be from another shell."""
    for fault, _ in sightings(facts):
        if finding.rule in fault.explains and fault.has_opposite:
            seen = [one for one in fault.find(facts, against=True) if one.host and one.host in finding.hosts]
            if seen and {one.host for one in seen} == set(finding.hosts):
                cause = f"{finding.cause}. But {_words(seen)} ({_cite_lines(seen)})"
                lines = [*finding.evidence[: _MAX_LINES - 1], seen[0].evidence]
                return finding.with_fields(cause=cause, evidence=lines)
    return finding


def _related_sightings(facts: Facts, finding: Finding, fault: Fault, seen: Sequence[Sighting]) -> list[Sighting]:
    """Return the sightings related to a finding: on its hosts, and of the NIC if its lines name one."""
    hosts = set(finding.hosts)
    text = "\n".join(line.text for line in finding.evidence)
    if fault.unless and re.search(fault.unless, text):
        return []
    cards = {item.name for _, item in items(facts, "port", "gid", "counter") if item.name}
    cards = cards.union(*cards_in_use(facts).values())
    named = {card for card in cards if re.search(rf"(?<!\w){re.escape(card)}(?!\w)", text)}
    near = [sighting for sighting in seen if not sighting.host or not hosts or sighting.host in hosts]
    own = [sighting for sighting in near if (sighting.part in named if named and sighting.part else sighting.is_in_use)]
    if own or fault.where_it_hurts:
        return own
    return [sighting for sighting in seen if sighting.host not in hosts and sighting.is_in_use]


def _may_explain(facts: Facts, finding: Finding, fault: Fault) -> bool:
    """Return whether no other reason is known: a missing kernel module does not explain an excessive distance."""
    if not finding.rule.startswith("gdr-") or "peermem" not in "".join(fault.fix):
        return True
    reasons: list[Notice] = [*networks.gdr_refusals(facts), *networks.gpus_too_far(facts)]
    is_other = networks.first_too_far(reasons) or facts.is_rccl() or networks.settings_without_gdr(facts)
    return not is_other and all((kind.net or "").startswith("IB") for kind in facts.inter_host_rdma_paths().kinds)


def _confidence(facts: Facts, finding: Finding, fault: Fault, seen: Sequence[Sighting]) -> str:
    """Return the confidence: a file that may be of another host, or of the other end of a transfer, proves nothing."""
    sure = fault.explains[finding.rule]
    if finding.rule.startswith("gdr-") and networks.gdr_refusals(facts):
        sure = CERTAIN  # NCCL asked the drivers, and the module is missing
    is_near = all(sighting.host and (not finding.hosts or sighting.host in finding.hosts) for sighting in seen)
    return sure if is_near or (len(facts.job.hosts) < 2 and sure == CERTAIN) else LIKELY


def _words(seen: Sequence[Sighting]) -> str:
    places = group_values((sighting.words, sighting.host) for sighting in seen)
    parts = [
        f"{words} on {list_words(named)}" if (named := [*filter(None, hosts)]) else words
        for words, hosts in places.items()
    ]
    return "; ".join(parts[:3]) + (f"; and {len(parts) - 3} more" if len(parts) > 3 else "")


def _cite_lines(seen: Iterable[Sighting]) -> str:
    return list_words([cite_line(sighting.evidence) for sighting in seen], limit=3)
