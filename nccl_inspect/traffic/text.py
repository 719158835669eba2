"""Traffic for people: the calls, the bytes on paths, and the slowest path."""

from __future__ import annotations

import textwrap

from tabulate import tabulate

from nccl_inspect.report import Style
from nccl_inspect.report.words import block
from nccl_inspect.traffic.flows import Flow, Operation, Traffic
from nccl_inspect.util.grouping import grouped
from nccl_inspect.util.text import printable
from nccl_inspect.util.wording import count

_OPERATION_HEAD = ["communicator", "operation", "size", "calls", "type", "algorithm", "mean per rank"]
_PATH_HEAD = ["path", "pairs", "all pairs", "busiest pair", "carries", "takes"]
_NO_CALLS = (
    "no collective call in this log: run with NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,ENV,GRAPH,COLL,TUNING "
    "(COLL for the calls, TUNING for their algorithms)"
)


def render(traffic: Traffic, by: str, style: Style) -> str:
    """Two tables, and notes on their assumptions."""
    if not traffic.operations:
        return "\n".join(block("", _NO_CALLS, style, 0, 0)) + "\n"
    parts = [_table(_OPERATION_HEAD, _operations(traffic.operations), style)]
    if traffic.flows:
        parts.append(_table(_PATH_HEAD, _kinds(traffic.flows), style))
    parts.append("\n".join(_notes(traffic, style)))
    return "\n\n".join(filter(None, parts)) + "\n"


def _table(head: list[str], rows: list[list[str]], style: Style) -> str:
    """A table, or a paragraph per row if the terminal is too narrow."""
    table = tabulate(rows, head, tablefmt="simple", disable_numparse=True)
    if max(map(len, table.splitlines())) <= style.width:
        return table
    texts = [", ".join(f"{name} {cell}" for name, cell in zip(head[1:], row[1:], strict=True)) for row in rows]
    width = max(style.width, 40)
    return "\n".join(
        line
        for row, text in zip(rows, texts, strict=True)
        for line in textwrap.wrap(f"{row[0]}: {text}", width, subsequent_indent="  ", break_on_hyphens=False)
    )


def _operations(operations: list[Operation]) -> list[list[str]]:
    """One row for each kind of call; communicators that do the same share it, and a Recv is counted with its Send."""
    sending = {operation.communicator for operation in operations if operation.func == "Send"}
    rows: dict[tuple[str, ...], list[Operation]] = {}
    for operation in operations:
        if operation.func != "Recv" or operation.communicator not in sending:
            rows.setdefault((str(operation.nranks), *_operation(operation)), []).append(operation)
    return [[_communicators(some), *cells] for (_, *cells), some in rows.items()]


def _communicators(some: list[Operation]) -> str:
    names = dict.fromkeys(operation.communicator for operation in some)
    ranks = count(some[0].nranks, "rank")
    if len(names) > 1:
        return f"{len(names)} of {ranks}"
    return printable(some[0].communicator or f"unknown, {ranks}")


def _operation(operation: Operation) -> list[str]:
    small, large = amount(operation.smallest), amount(operation.largest)
    algorithm = "/".join(operation.algorithms) or ("direct" if operation.basis == "direct" else "ring?")
    return [
        operation.func,
        small if small == large else f"{small} to {large}",
        str(operation.calls),
        operation.datatype,
        " ".join(filter(None, (algorithm, "/".join(operation.protocols)))),
        amount(operation.sent),
    ]


def _kinds(flows: list[Flow]) -> list[list[str]]:
    by_kind = grouped((flow.detail, flow) for flow in flows)
    rows = []
    for kind, some in by_kind.items():
        busiest = some[0]
        times = busiest.seconds
        takes = f"{_seconds(times[0])} to {_seconds(times[1])}" if times else "?"
        total = amount(sum(flow.bytes for flow in some))
        pair = f"{busiest.src} -> {busiest.dst}"
        rows.append([printable(kind), str(len(some)), total, pair, amount(busiest.bytes), takes])
    return rows


def _notes(traffic: Traffic, style: Style) -> list[str]:
    lines: list[str] = []
    slowest = traffic.bottleneck
    if slowest and len({flow.detail for flow in traffic.flows}) > 1:
        flow = slowest.flow
        sure = "the bottleneck" if slowest.sure else "most likely the bottleneck"
        text = f"{printable(flow.detail)}, {sure}: {flow.rate} ({flow.rate.source if flow.rate else ''})"
        lines += block("slowest", text + (", if NCCL uses rings" if flow.assumed else ""), style, 0)
    if any(operation.basis == "assumed ring" for operation in traffic.operations):
        text = "the log does not name every algorithm; 'ring?' assumes rings. NCCL_DEBUG_SUBSYS=…,TUNING logs them"
        lines += block("assumed", text, style, 0)
    for reason, size in traffic.unplaced.items():
        lines += block("not placed", f"{amount(size)}: {printable(reason)}", style, 0, 12)
    return lines


def amount(size: float) -> str:
    """Bytes in words: ``16.8 MB``."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if size < 1000 or unit == "TB":
            break
        size /= 1000
    return f"{size:.0f} {unit}" if unit == "B" or size >= 100 else f"{size:.3g} {unit}"


def _seconds(time: float) -> str:
    if time >= 1:
        return f"{time:.3g} s"
    return f"{time * 1e3:.3g} ms" if time >= 1e-3 else f"{time * 1e6:.3g} us"
