"""What a log says of a job, which must not depend on how the log was handed over or wrapped."""

from __future__ import annotations

from functools import cache
from typing import Any

import sample_data

import nccl_inspect
from nccl_inspect.model.job import Job


@cache
def capture(name: str) -> tuple[bytes, ...]:
    (data,) = sample_data.contents(name)
    return tuple(data.rstrip(b"\n").split(b"\n"))


@cache
def read_plain(name: str) -> dict[str, Any]:
    return describe_job(nccl_inspect.read(b"\n".join(capture(name)) + b"\n"))


def describe_job(job: Job) -> dict[str, Any]:
    first = job.first_failure
    return {
        "paths": [(one.src, one.dst, one.src_host, one.detail, one.scope, one.gdr, one.channels) for one in job.paths],
        "findings": sorted((one.rule, one.severity, one.confidence, tuple(one.ranks)) for one in job.findings),
        "communicators": [
            (one.id, one.parent, one.nranks, one.ranks, one.rings, one.state) for one in job.communicators
        ],
        "verdict": job.verdict,
        "environment": sorted((one.name, one.value) for one in job.environment),
        "first failure": first.ranks if first else None,
        "versions": job.nccl_versions,
        "lines": (job.sources[0].nccl_lines, job.sources[0].typed_lines, job.sources[0].damaged_lines),
    }
