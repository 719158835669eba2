"""Traffic as a table: one row for each kind of call, or for each path."""

from __future__ import annotations

import csv
import io

from nccl_inspect.report import Style
from nccl_inspect.traffic.flows import Flow, Operation, Traffic
from nccl_inspect.traffic.json import flow_to_dict, operation_to_dict


def render(traffic: Traffic, by: str, style: Style) -> str:
    """The columns of the JSON; lists are separated by semicolons, unknown values are empty."""
    if by == "path":
        names = list(flow_to_dict(Flow(0, 0)))
        rows = list(map(flow_to_dict, traffic.flows))
    else:
        names = list(operation_to_dict(Operation("", "", "", 0, 0, 0, 0, 0, 0.0)))
        rows = list(map(operation_to_dict, traffic.operations))
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(names)
    writer.writerows([[_cell(row[name]) for name in names] for row in rows])
    return out.getvalue()


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return ";".join(map(str, value)) if isinstance(value, list) else "" if value is None else str(value)
