"""The document ``nccl-inspect/1``, described by ``nccl_inspect/schema/nccl-inspect-1.json``."""

import json

from nccl_inspect.model.job import Job
from nccl_inspect.report import Style


def render(job: Job, style: Style) -> str:
    """The document as JSON, indented for reading."""
    return json.dumps(job.to_dict(), indent=1, ensure_ascii=True) + "\n"
