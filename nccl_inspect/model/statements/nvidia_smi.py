"""What nvidia-smi printed into the log of the machines of the job, by what launchers and collectors put before it.

Scripts run it where they start, which may be a login node, and logs quote what it printed elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field
from itertools import chain

from nccl_inspect.model.job import Job, Notice
from nccl_inspect.util.patterns import compile_later
from nccl_inspect.util.records import Frozen
from nccl_inspect.util.text import decode, encode

_BEGINS = compile_later(rb"\s*(?:GPU ?\d|MIG )")


class Shown(Frozen):
    """Holds what it printed."""

    lines: Mapping[str, Notice] = field(default_factory=dict)  # by the text after the labels
    proven: bool = True  # whether the text before them shows that they are of all of the job's hosts


def on_hosts(job: Job, role: str) -> Shown:
    """Return what productions of a role say, without quoted lines and those of hosts that are not in the job."""
    lines: dict[str, Notice] = {}
    owners: list[set[str]] = []
    for notice in job.notices:
        if role not in notice.roles:
            continue
        from nccl_inspect.ingest import envelopes  # few logs show it

        text, stated = next(
            (inner for inner in envelopes.peel_all(encode(notice.message)) if _BEGINS.match(inner.text)),
            (b"", envelopes.NOTHING),
        )
        # A label or the rank of a launcher stands for hosts.
        if stated.label is None:
            hosts = {host.name for host in job.hosts if stated.rank in host.ranks}
        else:
            words = set(map(_short, re.split("[/@ ]", stated.label)))
            hosts = {host.name for host in job.hosts if _short(host.name) in words}
            hosts = hosts or {last.process.host for last in job.last_lines if last.process.apart == stated.label}
        if text and (hosts or stated.label is None):
            lines.setdefault(decode(text.strip()), notice)
            owners.append(hosts)
    proven = all(owners) and set(chain(*owners)) == {host.name for host in job.hosts}
    return Shown(lines, proven)


def most_gpus(job: Job) -> int:
    """Return how many GPUs the job uses on a host, as far as the log shows them: no two ranks have the same one."""
    ranks: dict[str | None, set[int]] = {}
    local = job.paths.where(lambda kind: kind.scope == "intra")
    for host, rank in (*local.distinct("src_host", "src"), *local.distinct("src_host", "dst")):
        ranks.setdefault(host, set()).add(rank)
    return max([*(host.gpus for host in job.hosts), *map(len, ranks.values())], default=0)


def _short(host: str) -> str:
    return host.partition(".")[0]
