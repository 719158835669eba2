"""Traffic for programs."""

from __future__ import annotations

import json
from typing import Any

from nccl_inspect.report import Style
from nccl_inspect.traffic.flows import Flow, Operation, Traffic
from nccl_inspect.util.records import picked
from nccl_inspect.util.text import printable


def render(traffic: Traffic, by: str, style: Style) -> str:
    """A document with ``operations``, ``paths``, ``unplaced`` and ``bottleneck``."""
    slowest = traffic.bottleneck
    document = {
        "operations": list(map(operation_to_dict, traffic.operations)),
        "paths": list(map(flow_to_dict, traffic.flows)),
        "unplaced": [{"reason": printable(reason), "bytes": round(size)} for reason, size in traffic.unplaced.items()],
        "bottleneck": {**flow_to_dict(slowest.flow), "sure": slowest.sure} if slowest else None,
    }
    return json.dumps(document, indent=1) + "\n"


def operation_to_dict(operation: Operation) -> dict[str, Any]:
    """One kind of call."""
    return {
        **picked(operation, "communicator", "nranks"),
        "operation": operation.func,
        **picked(operation, "datatype", "calls"),
        "smallest_bytes": operation.smallest,
        "largest_bytes": operation.largest,
        **picked(operation, "bytes", "algorithms", "protocols", "basis"),
        "sent_bytes_per_rank": round(operation.sent),
    }


def flow_to_dict(flow: Flow) -> dict[str, Any]:
    """The traffic of one path."""
    times = flow.seconds
    return {
        "src": flow.src,
        "dst": flow.dst,
        "detail": printable(flow.path.detail) if flow.path else None,
        "gdr": flow.path.gdr if flow.path else None,
        "bytes": round(flow.bytes),
        "assumed_bytes": round(flow.assumed),
        "seconds_low": round(times[0], 6) if times else None,
        "seconds_high": round(times[1], 6) if times else None,
    }
