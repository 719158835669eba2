"""Texts about culprits: a heading, a sentence with the numbers inside and outside, a first step."""

from __future__ import annotations

from collections.abc import Sequence

from nccl_inspect.judging.remedies import COMMENT
from nccl_inspect.model.finding import Culprit
from nccl_inspect.model.job import Job
from nccl_inspect.util.records import Frozen, frozen
from nccl_inspect.util.wording import is_or_are, ranks_word

_NOUNS = {"end": "ends without GPUDirect RDMA", "pair": "pairs of hosts with failed transfers"}
_MOST_STEPS = 2
"""With more culprits, there is no single thing to look at first."""
_SIDES = {"send": "sending ", "receive": "receiving ", None: ""}
_ENDS = {"send": "start", "receive": "end", None: "start or end"}
_TOUCH = {"send": "leave", "receive": "arrive at", None: "touch"}
_AT = {"send": "send from", "receive": "receive on", None: "are on"}
_USE = {"send": "leave through", "receive": "arrive through", None: "use"}


@frozen
class Scene(Frozen):
    """The comparison that led to the culprits."""

    noun: str
    """``path``, ``end``, ``pair`` (of hosts), ``rank`` or ``host``."""
    scope: str
    """Of paths: ``intra``, ``inter`` or ``any``."""
    hosts: int
    """Number of hosts."""
    bad: int = 0
    good: int = 0
    explained: int = 0
    """Number of bad ones that the culprits explain."""


def name(culprit: Culprit) -> str:
    """Return a culprit by its kind and name: ``host node-a``, ``GPU 5 of node-a``, ``NCCL_ALGO=Tree``."""
    side = _SIDES[culprit.side]
    if culprit.kind in ("host", "rank", "rail", "communicator"):
        return f"{side}{culprit.kind} {culprit.name}"
    return side + _device(culprit)


def _device(culprit: Culprit) -> str:
    """Return a GPU or a NIC with its host; the name of all else."""
    host, mark, thing = culprit.name.partition(" ")
    return f"{thing} of {host}" if mark and culprit.kind in ("gpu", "nic") else culprit.name


def subject(culprits: Sequence[Culprit]) -> str:
    """Culprits in a heading."""
    if all(culprit.kind == "rank" and not culprit.side for culprit in culprits):
        return ranks_word(int(culprit.name) for culprit in culprits)
    more = len(culprits) - _MOST_STEPS
    return ", ".join(map(name, culprits[:_MOST_STEPS])) + (f" and {more} more" if more > 0 else "")


def line(named: Sequence[Culprit], beside: Sequence[Culprit], scene: Scene, job: Job) -> str:
    """Return all culprits in a sentence; those ``beside`` coincide with the only one that explains the fault."""
    along = _distinguish(beside)
    only_there = f"; only there: {_either(along, 'and')}" if along else ""
    if scene.noun in ("rank", "host") and all(culprit.kind == scene.noun for culprit in named):
        who = _either([_whose(culprit, job) for culprit in named], "and")
        rest = f"not the other {scene.noun}" if scene.good == 1 else f"none of the other {scene.good:,}"
        return f"only {scene.noun}{'s' * (len(named) > 1)} {who}, {rest}{only_there}"
    what = _NOUNS.get(scene.noun, f"{scene.noun}s")
    subjects = (
        f"all {scene.bad:,} {what}" if scene.explained == scene.bad else f"{scene.explained:,} of {scene.bad:,} {what}"
    )
    verbs = [_verb(culprit, scene) for culprit in named]
    first = verbs[0]
    if scene.bad == 1:
        noun, _, rest = what.partition(" ")
        subjects = f"the only {noun[:-1]} {rest or 'with the fault'}"
        words = (verb.partition(" ") for verb in verbs)
        verbs = [
            {"are": "is", "have": "has", "touch": "touches"}.get(verb, f"{verb}s") + b + of for verb, b, of in words
        ]
    objects = [_object(culprit, beside, scene, job) for culprit in named]
    if len(named) > 1:
        objects = [f"{what} ({culprit.bad:,})" for what, culprit in zip(objects, named, strict=True)]
    # The verb is not repeated if all share it.
    both = zip(verbs, objects, strict=True)
    parts = [what if at and verb == verbs[0] else f"{verb} {what}" for at, (verb, what) in enumerate(both)]
    good = sum(culprit.of - culprit.bad for culprit in named)
    inside = f", as {_auxiliary(first, good)} {good:,} good {'one' if good == 1 else 'ones'}" if good else ""
    return f"{subjects} {_either(parts, 'or')}{inside}; {_outside(named, scene, first, scene.good - good)}{only_there}"


def _verb(culprit: Culprit, scene: Scene) -> str:
    """Return the verb between the bad ones and a culprit, in the plural."""
    kind, side = culprit.kind, culprit.side
    if scene.noun in ("rank", "host"):
        return {"host": "are on", "nic": "name", "communicator": "are in"}.get(kind, "have")
    if kind in ("nic", "rail"):
        return _USE[side if scene.noun == "path" else None]
    if scene.noun == "pair":
        return "include"
    if scene.noun == "end":
        return _AT[side] if kind in ("host", "gpu", "rank") else "belong to"
    if kind in ("gpu", "rank"):
        return f"{_ENDS[side]} at"
    if kind == "host":
        return "are within" if scene.scope == "intra" else _TOUCH[side]
    return "belong to" if kind == "communicator" else "touch"


def _object(culprit: Culprit, beside: Sequence[Culprit], scene: Scene, job: Job) -> str:
    kind, ranks = culprit.kind, f" ({ranks_word(culprit.ranks)})" if culprit.ranks else ""
    if kind == "gpu":
        return _device(culprit) + ranks
    if kind == "nic":
        gpu = next((other.name.partition(" ")[2] for other in beside if other.kind == "gpu"), "")
        return _device(culprit) + (f", the NIC of {gpu} ({ranks_word(culprit.ranks)})" if gpu else "")
    if kind in ("rank", "rail", "communicator"):
        return f"{kind} {_whose(culprit, job)}"
    if kind in ("setting", "version"):
        who = ranks if ranks.count(",") < 8 else ""
        return f"{culprit.name}{who}" if scene.noun == "rank" else f"ranks with {culprit.name}{who}"
    return culprit.name


def _whose(culprit: Culprit, job: Job) -> str:
    """Return a rank with its place, and the name of all else."""
    if culprit.kind != "rank":
        return culprit.name
    rank = int(culprit.name)
    host = next((host.name for host in job.hosts if rank in host.ranks), None)
    gpu = job.gpus.get(rank)
    place = f"GPU {gpu.nvml_dev} of {host}" if gpu and gpu.nvml_dev is not None else f"on {host}"
    return f"{culprit.name} ({place})" if host and not host.startswith("?") else culprit.name


def _outside(named: Sequence[Culprit], scene: Scene, verb: str, elsewhere: int) -> str:
    """Return the state of those without the trait; paths that do not touch a host belong to other hosts."""
    where, is_other = "", False
    joint = {"intra": "within", "inter": "between"}.get(scene.scope)
    if scene.noun == "path" and joint:
        others = scene.hosts - len(named)
        is_of_hosts = all(culprit.kind == "host" and not culprit.side for culprit in named)
        is_other = is_of_hosts and others >= 1 and (others > 1 or scene.scope != "inter")  # else the log names no other
        where = f" {joint} the other {f'{others} hosts' if others > 1 else 'host'}" if is_other else f" {joint} hosts"
    if (rest := scene.bad - scene.explained) > 0:
        return f"of the other {elsewhere + rest:,}{where} only {rest:,} {is_or_are(rest)} bad"
    if elsewhere == 1 and not is_other:
        return f"the other one{where} {_auxiliary(verb, 1)} not"
    return f"none of the {'' if is_other else 'other '}{elsewhere:,}{where} {_auxiliary(verb, 1)}"


def _auxiliary(verb: str, number: int) -> str:
    if verb.startswith("are "):
        return is_or_are(number)
    return "does" if number == 1 else "do"


def _distinguish(beside: Sequence[Culprit]) -> list[str]:
    """Return the settings and versions that coincide with the culprit."""
    return [other.name for other in beside if other.kind in ("setting", "version")]


def _either(parts: Sequence[str], word: str) -> str:
    *first, last = parts
    return f"{', '.join(first)} {word} {last}" if first else last


def step(named: Sequence[Culprit], beside: Sequence[Culprit], scene: Scene, job: Job) -> str:
    """Return what to look at first; empty if there are too many culprits, or none that can be inspected."""
    kinds = {culprit.kind for culprit in named}
    if len(named) > _MOST_STEPS or len(kinds) > 1 or scene.noun == "host":
        return ""
    (kind,) = kinds
    things = _either([_device(culprit) for culprit in named], "and")
    host, _, device = named[0].name.partition(" ")
    if kind == "host" and (along := _distinguish(beside)):
        return f"Start with {things}: no other host has {_either(along, 'and')}."
    if kind == "gpu":
        gpu, is_rccl = device.removeprefix("GPU "), "rccl" in job.dialects
        if len(named) == 1 and not is_rccl and gpu.isdigit() and int(gpu) <= 16:  # else it is a bus id, as until 2.13
            look = f"nvidia-smi -i {gpu} -q; nvidia-smi topo -m; dmesg -T | grep -i xid"
            return f"{look}{COMMENT}on {host}: look at GPU {gpu} first"
        return f"{'rocm-smi --showtopo' if is_rccl else 'nvidia-smi topo -m'}; dmesg -T{COMMENT}look at {things} first"
    if kind == "nic" and len(named) == 1 and not device.startswith("NIC "):
        show = "ibstat" if device.startswith("mlx") else "ibv_devinfo -d"
        return f"{show} {device}; nvidia-smi topo -m{COMMENT}on {host}: look at {device} first"
    if kind == "rail" and scene.noun not in ("path", "end"):
        # For failed transfers: if only GPUDirect RDMA is missing, cables and switches are fine.
        return f"Look at rail {things} first: its switch, its cables, the driver of that NIC on every host."
    # Ranks that report a fault of their host name it: then the steps of the rule come first.
    return _STEPS[kind].format(things) if kind in _STEPS and (kind, scene.noun) != ("host", "rank") else ""


_STEPS = {
    "host": "Compare devices, drivers, image and environment of {} with those of a good host.",
    "nic": "Look at {} first: port, cable, driver, and its distance from the GPU (nvidia-smi topo -m).",
    "rail": "Look at rail {} first: that NIC on every host, its driver, and its distance from the GPU "
    "(nvidia-smi topo -m).",
    "setting": "Look at {} first: only the ranks with the fault have it.",
    "version": "Look at {} first: run the same release on all ranks.",
}
"""By kind."""
