"""A policy written from a good log: what that log shows is what later runs must show."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sized
from functools import partial

from nccl_inspect._version import __version__
from nccl_inspect.extras.gate.policy import SCOPES, list_ways, select_scope, world_communicator
from nccl_inspect.model.job import CommunicatorInfo, Job, Selection, Setting
from nccl_inspect.model.statements.environment import is_echoed
from nccl_inspect.util.text import escape_controls
from nccl_inspect.util.wording import count, list_words

_HARMFUL = ("NCCL_P2P_DISABLE=1", "NCCL_SHM_DISABLE=1", "NCCL_IB_DISABLE=1")
"""Settings that take the fast paths away; a good log without them is a reason to keep them out."""
_OVER = ("destroyed", "aborted")
"""States that a communicator has only after all others."""
_OF_ONE_RUN = re.compile(r"NCCL_COMM_ID|NCCL_HOSTID|NCCL_DEBUG.*|.*_FILE|.*_PATH")
"""Variables whose values say nothing about the next run."""
_SCOPE_WORDS = {"intra": "within a host", "inter": "between hosts"}


def write_policy(job: Job) -> str:
    """Return the policy as TOML with comments.

    Args:
        job: judged, and healthy: else the first lines say that it is not.
    """
    parts = (_head(job), _size(job), _findings(job), _versions(job), _network(job), _paths(job), _environment(job))
    return "\n\n".join("\n".join(lines) for part in parts if (lines := list(part))) + "\n"


def doubt(job: Job) -> str:
    """Return why the log does not show what a healthy job is like; empty when it does."""
    unread = sum(bool(source.problem) for source in job.sources)
    if unread:
        return f"{count(unread, 'input')} could not be read"
    if job.verdict in ("failed", "degraded"):
        leads = [finding.rule for finding in job.findings if finding.severity != "info"]
        return f"the job is {job.verdict}" + (f" ({leads[0]})" if leads else "")
    if job.verdict == "unknown":
        return "the log does not show whether the job is healthy"
    for comm in job.communicators:
        if comm.state not in _OVER and comm.started and len(comm.completed) < comm.nranks:
            return f"the log ends before communicator {comm.id} is complete ({_part(comm.completed, comm)})"
    return ""


def caution(job: Job) -> str:
    """Return why a healthy log may not show all that a policy needs; empty where nothing hints at more."""
    for comm in job.communicators:
        # One that nobody has connected yet may be used later, or never.
        if comm.state not in _OVER and 0 < len(comm.connected) < comm.nranks:
            return f"the log ends while communicator {comm.id} connects ({_part(comm.connected, comm)})"
    return ""


def _part(ranks: Sized, comm: CommunicatorInfo) -> str:
    return f"{len(ranks)} of {count(comm.nranks, 'rank')}"


def _head(job: Job) -> Iterator[str]:
    names = list_words(escape_controls(source.name) for source in job.sources)
    yield f"# Written by nccl-inspect {__version__}: check --learn {names}"
    if why := doubt(job):
        yield f"# CAUTION, written with --force: {why}. Look at each line."
    elif why := caution(job):
        yield f"# CAUTION: {why}. Look at each line."
    yield "# Later runs must show what this log shows. Loosen or delete what may differ."
    yield "# Check a run: nccl-inspect check job.log --policy THIS_FILE"


def _size(job: Job) -> Iterator[str]:
    comm = world_communicator(job)
    yield f"world_size = {comm.nranks}" if comm else "# world_size: the log does not show it"
    nodes = comm.nnodes if comm and comm.nnodes else len(job.hosts)
    if comm and (comm.nnodes or len(job.ranks_seen) == comm.nranks):
        yield f"hosts = {nodes}   # to NCCL each pod is a host"
    if comm and comm.channels:
        yield f"min_channels = {comm.channels}   # of the communicator of all ranks"


def _findings(job: Job) -> Iterator[str]:
    yield 'max_severity = "info"   # findings above it break the policy: none, info, warning, error'
    for key, number, words in (
        ("max_unrecognised_lines", sum(s.unrecognised_lines for s in job.sources), "NCCL lines not recognized"),
        ("max_damaged_lines", sum(s.damaged_lines for s in job.sources), "torn lines that could not be repaired"),
    ):
        yield f"{key} = {number}   # {words}"


def _versions(job: Job) -> Iterator[str]:
    yield '[versions]   # globs; nccl_min = "…" asks for this or a later one'
    versions = [version for version in job.nccl_versions if "inferred" not in version]
    yield _list("nccl", versions) if versions else "# nccl: the log does not show it"
    if job.cuda_versions:
        yield _list("cuda", job.cuda_versions) + "   # of the driver"
    if job.network.plugin_version:
        yield _list("plugin", [job.network.plugin_version]) + "   # the network plugin"


def _network(job: Job) -> Iterator[str]:
    if job.network.name and any(kind.transport == "NET" for kind in job.paths.kinds):
        yield "[network]"
        yield _list("name", [job.network.name])
        if job.network.provider:
            yield _list("provider", [job.network.provider])


def _paths(job: Job) -> Iterator[str]:
    for number, scope in enumerate(SCOPES):
        if number:
            yield ""
        paths = select_scope(scope, job)
        if paths:
            yield f"[paths.{scope}]   # {_SCOPE_WORDS[scope]}"
            yield from _scope(paths)
        else:
            yield f"# [paths.{scope}]: the log has no path {_SCOPE_WORDS[scope]}"


def _scope(paths: Selection) -> Iterator[str]:
    ways = [way for kind in paths.kinds for way in list_ways(kind)]
    details = sorted({way.detail for way in ways})
    kinds = sorted({way.transport for way in ways})
    hint = f"   # or any of the transport: transport = [{', '.join(map(_text, kinds))}]"
    yield _list("transport", details) + hint
    net = [way for way in ways if way.transport == "NET"]
    if net:
        yield "gdr = true" if all(way.gdr is True for way in net) else "# gdr: the log has paths without GPUDirect RDMA"
    yield f"min_channels = {min(len(kind.channels) for kind in paths.kinds)}   # of each pair"


def _environment(job: Job) -> Iterator[str]:
    present = {setting.name for setting in job.environment}
    yield "[environment]   # NAME or NAME=VALUE; globs"
    names = [(entry.partition("=")[0], entry) for entry in _HARMFUL]
    harmful = [entry for name, entry in names if name not in present and is_echoed(name, job.nccl_versions)]
    yield _list("forbidden", harmful)
    escape = partial(re.sub, r"([*?[])", r"[\1]")  # a glob that fits only this value
    wanted = [f"{setting.name}={escape(setting.value)}" for setting in job.environment if _is_lasting(setting)]
    if wanted:
        yield "# NCCL echoes a variable when it uses it: one that is missing is undecided, another value is broken."
        yield _list("required", wanted)


def _is_lasting(setting: Setting) -> bool:
    is_users = setting.source == "environment" and setting.ranks is None
    return is_users and not _OF_ONE_RUN.fullmatch(setting.name) and escape_controls(setting.value) == setting.value


def _list(key: str, words: Iterable[str]) -> str:
    return f"{key} = [{', '.join(map(_text, words))}]"


def _text(word: str) -> str:
    """Return a TOML string: those of JSON are."""
    return json.dumps(escape_controls(word), ensure_ascii=False)
