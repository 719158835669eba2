"""Reads the result tables of benchmarks as rows, whoever printed them, and how fast a training runs.

* nccl-tests and rccl-tests of all releases: the columns redop and root came in 2.13, ``error`` became ``#wrong``; rows
  without a head, with text in front or columns of their own, rows that a terminal or an e-mail broke, and ``-J``
* ``all_reduce_bench`` (ml-engineering), DeepSpeed's ``ds_bench``, perftest (``ib_write_bw``), nvbandwidth and
  p2pBandwidthLatencyTest; NCCL Inspector's lines of JSON (a profiler plugin of NVIDIA's, not this program)

A row does not name its operation. If nothing else does, the ratio of bus to algorithm bandwidth, and that of size to
count, tell it: these are the formulas of nccl-tests (src/*.cu, ``GetBw`` and ``GetCollByteCount``).

A training states steps, tokens, samples, or its time in all. Each kind of statement is a pattern, with the unit of its
number. Where a program states the same in several ways, the one with the most lines counts; of progress bars, the one
that took longest, which is hardly that of loading a file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import field
from math import isfinite
from operator import attrgetter
from statistics import median
from typing import Any, NamedTuple

from nccl_inspect.bandwidth.lines import CELLS, TAG, TYPES
from nccl_inspect.model.evidence import Evidence
from nccl_inspect.model.inventory import IN_ALL, Speed
from nccl_inspect.util.records import Frozen, Record, frozen, record

OPERATIONS = (
    *("all_reduce", "all_gather", "reduce_scatter", "alltoallv", "alltoall", "sendrecv", "broadcast", "reduce"),
    *("gather", "scatter", "hypercube"),
)
_NAME = rf"(?:{'|'.join(OPERATIONS)}|allreduce|allgather|reducescatter|all_to_all)"
_PROGRAM = re.compile(rf"(?<![a-z])({_NAME})_perf(?![a-z])")
_TOPIC = re.compile(rf"(?<![a-z])({_NAME})(?![a-z])")
_START = re.compile(r"Collective test starting: (\S+)")
_OPTIONS = re.compile(r"nThread (\d+) nGpus (\d+) minBytes")
_WARMUP = re.compile(r"warmup iters: (\d+)")
_RANK = re.compile(r"Rank +(\d+) .{0,30}?Pid +(\d+) on +(\S+) device +(\d+) \[[^\]]*\] ?(.*)")
_ROW = re.compile(rf"(?<![\d.])(\d+) +(\d+) +({TYPES}) (.*)")
_REST = re.compile(rf"^\s*{CELLS}$")
_TAG = re.compile(rf"^{TAG}")
_MESSAGE = re.compile(r"\S*:\d+:\d+ \[\d+\] NCCL [A-Z]+ .*")
_HEAD = re.compile(r"(?:time|cputime) +algbw +busbw")
_PLACEMENT = re.compile(r"^#? *in-place$")
_DATED = re.compile(r"\s\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\s*$")
_BYTES = {
    "half": 2,
    "double": 8,
    "bfloat16": 2,
    "float16": 2,
    "float64": 8,
    "int64": 8,
    "uint64": 8,
    "int8": 1,
    "uint8": 1,
}
_CELLS = 4
_MOST_BETWEEN = 5000
"""Lines of NCCL at most between the parts of a row."""
_ONLY_IN_PLACE = re.compile(r"\S {30,}\S")
"""Blanks in place of the cells out of place."""
_CLOSE = 0.02
_PAYLOAD = re.compile(
    r"([\d.]+)(\w?)i?B payload bandwidth of (\w+) over (\d+) ranks"
    r"|average bandwidth of (\w+) (?:over|with a ([\d.]+)(\w?)B payload .*?) ?(\d+) ranks"
)
_MARKDOWN = re.compile(r"(?:\| *([\d.]+)([KMGT]?)i?B )?\| *([\d.]+)GBps \| *([\d.]+)GBps \|")
_STATED = re.compile(r"busbw: ([\d.]+) GBps")
_SENTENCE = re.compile(r"\b(\d+) ?(?:bytes|B)\b.*?\bbus_?bw[:= ]+([\d.]+) ?GB(?:/s|ps)")
"""What programs of users print of one size, with the name of the operation in front."""
_RANKS = re.compile(r"\b(\d+) ranks\b|\b(?:world_size|nranks|ranks)[:= ]+(\d+)")
_DEEPSPEED = re.compile(r"Performance of (\w+) on (\d+) devices")
_DEEPSPEED_ROW = re.compile(r" (\d+)x(\d+) +([\d.]+) ([un\u00b5m]*s) +([\d.]+) +([\d.]+)")
_PERFTEST = re.compile(r"(RDMA_\w+|Send|SEND) (Bidirectional )?(?:Post List )?BW Test")
_PERFTEST_HEAD = re.compile(r"#bytes.*BW average\[(\w+)/s")
_PERFTEST_ROW = re.compile(r"^\s*\d+(?:\s+[\d.]+)+$")
_NVBANDWIDTH = re.compile(r"^Running (\w+)\.")
_MATRIX = re.compile(r"(?:(\w+)directional (P2P=\w+) .*)?(?:bandwidth|Matrix) \((\w+)/?s\)")
_MATRIX_ROW = re.compile(r"^\s*(\d+)((?:\s+(?:N/A|[\d.]+))+)\s*$")
_SHIFT = {"": 0, "B": 0, "K": 10, "M": 20, "G": 30, "T": 40}
_SECONDS = {"s": 1e6, "ms": 1e3, "us": 1.0, "\u00b5s": 1.0, "ns": 1e-3}
PROGRAM = "the program"
"""Of a user, which prints a sentence."""
_GBIT = 8
_NONE = -1.0
"""Stands for N/A."""
_MIB_PER_S = (1 << 20) / 1e9


@frozen
class Row(Frozen):
    """One size, out of place or in place; bandwidths in GB/s."""

    size: int
    algbw: float
    busbw: float
    line: Evidence
    time_us: float = 0.0
    in_place: bool = False
    errors: float | None = None
    """Wrong values, or the largest error in old releases; None where nothing was checked."""
    type: str = ""
    redop: str = ""
    root: int = -1
    count: int = 0


@record
class Table(Record):
    """The results of one run of a benchmark."""

    tool: str = "nccl-tests"
    operation: str = ""
    is_sure: bool = True
    """Whether the operation is stated, or nothing else fits."""
    ranks: int = 0
    """0 for unknown."""
    nodes: int = 0
    is_whole: bool = False
    """Whether the list of ranks is."""
    hosts: dict[str, set[int]] = field(default_factory=dict)
    """The devices that are listed, by host."""
    gpus: set[str] = field(default_factory=set)
    rows: list[Row] = field(default_factory=list)
    warmup: int | None = None
    counts_wrong: bool | None = None
    """Whether the last column counts wrong values; None where there is no head."""
    columns: int = 0
    """Of one placement, as the head has them; 0 where there is none."""
    is_in_place: bool = False
    """Whether there are results in place only."""
    pids: set[int] = field(default_factory=set)
    start: int = 0
    """The order of the line that names its program."""
    fits: bool = True
    """Whether the rows can be those of the operation that is stated."""
    listed: set[int] = field(default_factory=set)

    @property
    def per_node(self) -> int:
        """Return the number of GPUs of a host; where the list is cut, that of the highest device."""
        return max((len(seen) if self.is_whole else max(seen) + 1 for seen in self.hosts.values()), default=0)

    @property
    def wrong_rows(self) -> list[Evidence]:
        """Return the rows with wrong results."""
        return [row.line for row in self.rows if self.counts_wrong and row.errors]


def tables(lines: Sequence[Evidence]) -> list[Table]:
    """Return the tables in some lines, those with rows only, each with its operation and number of ranks."""
    reader = _Reader(lines)
    found = [table for table in reader.read() if table.rows]
    for table in found:
        if table.tool == "nccl-tests":
            _conclude(table)
        elif (
            not table.ranks
            and table.operation == "all_reduce"
            and (row := max(table.rows, key=attrgetter("algbw"))).algbw > 1
        ):
            table.ranks = max(round(2 / (2 - row.busbw / row.algbw)), 0) if row.busbw < row.algbw * (2 - 1e-4) else 0
    return found


def factor(operation: str, ranks: int) -> float:
    """Return the ratio of bus to algorithm bandwidth."""
    if operation == "all_reduce":
        return 2 * (ranks - 1) / ranks
    return 1.0 if operation in ("broadcast", "reduce", "sendrecv") else (ranks - 1) / ranks


class _Cells(NamedTuple):
    """Holds what follows the type in a row of nccl-tests."""

    redop: str
    root: int
    groups: list[tuple[bool, float, float, float, float | None]]
    """Whether in place, time, both bandwidths and errors."""


class _Reader:
    """Goes through the lines; a table ends where the next one begins."""

    def __init__(self, lines: Sequence[Evidence]) -> None:
        self._lines = lines
        self._table = Table()
        self._program = ""
        """Of a command in front of its table."""
        self._unit = 1.0
        self._average = 3
        """The column of the average of perftest."""
        self._columns = ("busbw", "algbw")
        self._is_matrix = False

    def read(self) -> Iterator[Table]:
        """Yield all tables, empty ones as well."""
        place = 0
        source = ""
        while place < len(self._lines):
            line = self._lines[place]
            if line.source != source:
                yield self._begin()
                source, self._program = line.source, ""
            text = _TAG.sub("", line.text).expandtabs().rstrip()
            if text.startswith("{") and ('"bus_bw"' in text or '"bandwidth_matrix"' in text):
                yield from self._take_document(text, line)
            elif '"coll_perf"' in text:
                if self._table.tool != "NCCL Inspector":
                    yield self._begin("NCCL Inspector")
                yield from self._take_inspected(text, line)
            elif match := _ROW.search(text):
                place += self._take_row(match, line, place)
            else:
                yield from self._take_head(text, line) or self._take_other(text, line)
            place += 1
        yield self._begin()

    def _begin(self, tool: str = "nccl-tests", operation: str = "", **values: Any) -> Table:
        """Begin a table, and return the one before."""
        before, self._table = self._table, Table(tool=tool, operation=_plain_operation(operation), **values)
        self._is_matrix = False
        return before

    def _take_head(self, text: str, line: Evidence) -> list[Table]:
        """Take in what nccl-tests print around their rows; return the tables that end there."""
        table, ended = self._table, []
        if match := _START.search(text):
            ended = [self._begin(operation=match[1].partition("_perf")[0], start=line.order)]
        elif match := _OPTIONS.search(text):
            if table.rows or table.warmup is not None or table.tool != "nccl-tests":
                ended = [self._begin()]
            warmup = _WARMUP.search(text)
            self._table.warmup = int(warmup[1]) if warmup else None
            self._table.operation = self._table.operation or self._program
        elif match := _RANK.search(text):
            if table.rows:
                ended = [self._begin(operation=self._program)]
            self._table.listed.add(int(match[1]))
            self._table.pids.add(int(match[2]))
            self._table.hosts.setdefault(match[3], set()).add(int(match[4]))
            if match[5].strip():
                self._table.gpus.add(match[5].strip())
        elif _HEAD.search(text):
            if table.rows or table.tool != "nccl-tests":
                is_in_place = table.is_in_place and not table.rows
                ended = [self._begin(operation=self._program, is_in_place=is_in_place)]
            table = self._table
            names = text.split()[text.split().index("algbw") - 1 :]
            placements = names.count("algbw")
            names = names[: len(names) - (names[-1] == "timestamp")]
            table.counts_wrong, table.columns = "#wrong" in names, len(names) // placements
            table.operation = table.operation or self._program
            table.is_in_place &= placements == 1
        elif _PLACEMENT.match(text):
            if table.rows:
                ended = [self._begin(operation=self._program)]
            self._table.is_in_place = True
        elif match := _PROGRAM.search(text):
            self._program = _plain_operation(match[1])
            if table.rows:
                ended = [self._begin(operation=self._program)]
        else:
            return []
        return ended or [Table()]

    def _take_row(self, match: re.Match[str], line: Evidence, place: int) -> int:
        """Take in a row of nccl-tests; return on how many of the following lines it continues."""
        size, count, dtype, rest = match.groups()
        rest = _MESSAGE.sub("", rest)
        cells, taken, texts = self._cells(rest, is_joined=False), 0, [rest]
        for more, other in enumerate(self._lines[place + 1 : place + 3], 1):
            text = _TAG.sub("", other.text).rstrip()
            is_near = other.source == line.source and 0 < other.line - line.line < _MOST_BETWEEN
            if (cells and len(cells.groups) > 1) or not (is_near and _REST.match(text)):
                break
            texts.append(text)
            joined = (self._cells(glue.join(texts), is_joined=True) for glue in (" ", ""))
            better = next((each for each in joined if each and (len(each.groups) > 1 or not cells)), None)
            cells, taken = (better, more) if better else (cells, taken)
        if cells is None:
            return 0
        for in_place, time_us, algbw, busbw, errors in cells.groups:
            row = Row(
                int(size), algbw, busbw, line, time_us, in_place, errors, dtype, cells.redop, cells.root, int(count)
            )
            self._table.rows.append(row)
        return taken

    def _cells(self, text: str, is_joined: bool) -> _Cells | None:
        """Return operation, root and the cells of both placements behind the type; None where they are not whole."""
        text = _DATED.sub("", text)
        words = text.split()
        redop = words.pop(0) if words and words[0].isalpha() and words[0] not in ("nan", "inf") else ""
        values = [_read_number(word) for word in words]
        if any(value is None for value in values):
            return None
        width = self._table.columns or next(wide for wide in (4, 5, 8) if len(values) <= 2 * wide + 1 or wide == 8)
        has_root = len(values) % width == 1
        root = int(words[0]) if has_root and words[0].isdecimal() else -1
        values = values[has_root:]
        if not values or len(values) % width or len(values) > 2 * width:
            return None
        last = _CELLS if width == _CELLS + 1 else _CELLS - 1  # behind the bandwidth of copies that overlap
        groups = [[*values[at : at + 3], values[at + last]] for at in range(0, len(values), width)]
        only_in_place = len(groups) == 1 and (self._table.is_in_place or _ONLY_IN_PLACE.search(text) is not None)
        cells = []
        for at, (time, algbw, busbw, wrong) in enumerate(groups):
            errors = None if wrong == _NONE else wrong
            cells.append(
                (only_in_place or bool(at), _make_finite(time), _make_finite(algbw), _make_finite(busbw), errors)
            )
        if is_joined and len(cells) > 1:  # joined at the wrong place, the two halves do not agree
            ratios = [busbw / algbw for _, _, algbw, busbw, _ in cells if algbw > 1]
            if len(ratios) > 1 and abs(ratios[0] - ratios[1]) > _CLOSE * ratios[0]:
                return None
        return _Cells(redop, root, cells)

    def _take_document(self, text: str, line: Evidence) -> Iterator[Table]:
        """Take in what nccl-tests with ``-J`` and nvbandwidth with ``-j`` write."""
        try:
            document = json.loads(text)
        except ValueError:
            return
        for case in _list_entries(document.get("nvbandwidth"), "testcases"):
            yield self._begin("nvbandwidth", str(case.get("name")))
            matrix = [_make_finite(cell) for row in case.get("bandwidth_matrix") or () for cell in row]
            self._table.rows += [Row(0, cell, cell, line) for cell in matrix if cell]
        if not (results := _list_entries(document, "results")):
            return
        yield self._begin()
        table, config = self._table, document.get("config")
        for device in _list_entries(config, "devices") or _list_entries(document, "devices"):
            table.listed.add(int(device.get("rank", 0)))
            table.hosts.setdefault(str(device.get("hostname")), set()).add(int(device.get("device", 0)))
            table.gpus.add(str(device.get("device_info")))
        if isinstance(config, dict) and isinstance(warmup := config.get("warmup_iters"), int):
            table.warmup = warmup
        program = _PROGRAM.search(" ".join(map(str, document.get("args") or ())))
        table.operation, table.counts_wrong = _plain_operation(program[1]) if program else "", True
        for result in results:
            size, count = int(_make_finite(result.get("size"))), int(_make_finite(result.get("count")))
            dtype, redop, root = (str(result.get(name, "")).strip() for name in ("type", "redop", "root"))
            for name in ("out_of_place", "in_place"):
                if isinstance(cells := result.get(name), dict):
                    time = cells.get("time", cells.get("cpu_time"))
                    time_us, algbw, busbw = (
                        _make_finite(value) for value in (time, cells.get("alg_bw"), cells.get("bus_bw"))
                    )
                    wrong = _read_number(str(cells.get("nwrong")))
                    errors = wrong if wrong is not None and isfinite(wrong) else None
                    kind = dtype, redop, int(root) if root.isdecimal() else -1, count
                    table.rows.append(Row(size, algbw, busbw, line, time_us, name == "in_place", errors, *kind))

    def _take_inspected(self, text: str, line: Evidence) -> Iterator[Table]:
        """Take in a line of NCCL Inspector; each operation has a table of its own."""
        try:
            document = json.loads(text[text.index("{") :])
            call, header = document["coll_perf"], document.get("header", {})
            name = _plain_operation(re.sub(r"(?<=[a-z])(?=[A-Z])", "_", str(call["coll"])).lower())
            row = Row(
                int(call["coll_msg_size_bytes"]),
                float(call["coll_algobw_gbs"]),
                float(call["coll_busbw_gbs"]),
                line,
                float(call.get("coll_exec_time_us", 0)),
            )
        except (ValueError, KeyError, TypeError, AttributeError):
            return
        ranks, nodes = int(header.get("n_ranks") or 0), int(header.get("nnodes") or 0)
        if (name, ranks) != (self._table.operation, self._table.ranks):
            yield self._begin("NCCL Inspector", name, ranks=ranks, nodes=nodes)
        self._table.rows.append(row)

    def _take_other(self, text: str, line: Evidence) -> Iterator[Table]:
        """Take in a line of a program other than nccl-tests."""
        table = self._table
        if match := _DEEPSPEED.search(text):
            yield self._begin("DeepSpeed", match[1], ranks=int(match[2]))
        elif "BusBW" in text and table.tool == "DeepSpeed":
            self._unit = 1 / _GBIT if "BusBW (Gbps)" in text else 1.0
        elif table.tool == "DeepSpeed" and (match := _DEEPSPEED_ROW.search(text)):
            time_us = float(match[3]) * _SECONDS.get(match[4], 1.0)
            algbw, busbw = (float(match[at]) * self._unit for at in (5, 6))
            table.rows.append(Row(int(match[1]) * int(match[2]), algbw, busbw, line, time_us))
        elif match := _PAYLOAD.search(text):
            payload, unit, operation, ranks = match.groups()[:4] if match[1] else match.group(6, 7, 5, 8)
            yield self._begin("all_reduce_bench", operation, ranks=int(ranks))
            self._unit = float(payload or 0) * (1 << _SHIFT.get(unit or "", 0))
        elif table.tool == "all_reduce_bench" and "algbw" in text and "busbw" in text:
            self._columns = ("busbw", "algbw") if text.index("busbw") < text.index("algbw") else ("algbw", "busbw")
        elif table.tool == "all_reduce_bench" and (match := _MARKDOWN.search(text)):
            named = dict(zip(self._columns, (float(match[3]), float(match[4])), strict=True))
            size = float(match[1]) * (1 << _SHIFT[match[2]]) if match[1] else self._unit
            table.rows.append(Row(round(size), named["algbw"], named["busbw"], line))
        elif table.tool == "all_reduce_bench" and (match := _STATED.search(text)):
            table.rows.append(Row(round(self._unit), 0.0, float(match[1]), line))
        elif (match := _SENTENCE.search(text)) and (topic := _TOPIC.search(text[: match.start()].lower())):
            if (table.tool, table.operation) != (PROGRAM, _plain_operation(topic[1])):
                ranks = _RANKS.search(text)
                number = int(ranks[1] or ranks[2]) if ranks else 0
                yield self._begin(PROGRAM, topic[1], ranks=number)
            stated = re.search(r"\balg_?bw[:= ]+([\d.]+)", text)
            algbw = float(stated[1]) if stated else 0.0
            self._table.rows.append(Row(int(match[1]), algbw, float(match[2]), line))
        else:
            yield from self._take_link(text, line)

    def _take_link(self, text: str, line: Evidence) -> Iterator[Table]:
        """Take in a line of a program that measures single links."""
        table = self._table
        if match := _PERFTEST.search(text):
            yield self._begin("perftest", "ib_" + match[1].lower().removeprefix("rdma_") + "_bw", ranks=2, nodes=2)
        elif match := _PERFTEST_HEAD.search(text):
            if table.tool != "perftest":
                yield self._begin("perftest", "ib_write_bw", ranks=2, nodes=2)
            self._unit = 1 / _GBIT if match[1].startswith("Gb") else _MIB_PER_S
            columns = text.replace("BW ", "").split()
            self._average = next(at for at, name in enumerate(columns) if name.startswith("average["))
        elif table.tool == "perftest" and _PERFTEST_ROW.match(text):
            words = text.split()
            if len(words) > self._average:
                average = float(words[self._average]) * self._unit
                table.rows.append(Row(int(words[0]), average, average, line))
        elif match := _NVBANDWIDTH.search(text):
            yield self._begin("nvbandwidth", match[1])
        elif match := _MATRIX.search(text):
            if table.tool != "nvbandwidth" and match[3] == "GB":
                name = "_".join(filter(None, ("p2p", (match[1] or "").lower() + "directional", match[2])))
                yield self._begin("p2pBandwidthLatencyTest", name)
            self._is_matrix = match[3] == "GB"  # else it is about latency
        elif self._is_matrix and (match := _MATRIX_ROW.match(text)):
            is_square = table.tool != "nvbandwidth"  # a GPU with itself
            for column, cell in enumerate(match[2].split()):
                if "." in cell and not (is_square and column == int(match[1])):
                    table.rows.append(Row(0, _make_finite(cell), _make_finite(cell), line))


def _read_number(word: str) -> float | None:
    if word == "N/A":
        return _NONE
    try:
        return float(word.rstrip("*"))
    except ValueError:
        return None


def _make_finite(value: object) -> float:
    """Return a finite number, or 0 for what is none, such as the speed of what takes no time."""
    number = _read_number(str(value))
    return number if number is not None and number != _NONE and isfinite(number) else 0.0


def _list_entries(document: Any, name: str) -> list[dict[str, Any]]:
    value = document.get(name) if isinstance(document, dict) else None
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def _plain_operation(name: str) -> str:
    """Return an operation as nccl-tests call it."""
    name = name.removesuffix("_perf").removesuffix("_into_tensor").removesuffix("_tensor").removesuffix("_base")
    known = {"allreduce": "all_reduce", "allgather": "all_gather", "reducescatter": "reduce_scatter"}
    return known.get(name, "alltoall" if name in ("all_to_all", "all_to_all_single") else name)


def _conclude(table: Table) -> None:
    """Find the operation and the number of ranks of a table of nccl-tests, as far as its rows tell them."""
    is_headless = table.counts_wrong is None
    if is_headless:  # the root came with the count
        has_root = any(row.root >= 0 or row.redop for row in table.rows)
        table.counts_wrong = has_root and not any(row.errors and 0 < row.errors < 1 for row in table.rows)
    listed = max(table.listed, default=-1) + 1
    table.is_whole = listed > 0 and len(table.listed) == listed
    clear = [row for row in table.rows if row.algbw >= 1 and row.busbw] or [
        row for row in table.rows if row.algbw > 0.1
    ]
    ratio = median(row.busbw / row.algbw for row in clear) if clear else 0.0
    sample = table.rows[-1]
    widths = {row.type: _BYTES.get(row.type, 1 if "8" in row.type else 4) for row in table.rows}
    shares = [row.size / (row.count * widths[row.type]) for row in table.rows if row.count]
    share = median(shares) if shares else 1
    parts = round(share) if share > 1 + _CLOSE else 1
    checked = [row for row in table.rows if row.errors is not None]
    is_unchecked_in_place = bool(checked) and not any(row.in_place for row in checked)
    if not table.operation:
        topic = _TOPIC.search(sample.line.source.rpartition("/")[2].lower())
        inferred = _infer(ratio, parts, sample, is_unchecked_in_place)
        named = _plain_operation(topic[1]) if topic else ""
        fits = named and (named == inferred or {named, inferred} <= {"all_gather", "alltoall", "gather", "scatter"})
        table.operation = named if fits else inferred
        is_pair = inferred == "all_reduce" and abs(ratio - 1) < _CLOSE and is_headless  # or sendrecv
        table.is_sure = bool(fits) or not (is_pair or (inferred == "all_gather" and not checked))
    elif table.operation == "all_reduce":
        table.fits = sample.root < 0 and sample.redop != "none"
    if parts > 1:
        table.ranks = parts
    elif table.operation == "all_reduce" and 1 + _CLOSE / 2 < ratio < 2 - 1e-4:
        implied = 2 / (2 - ratio)
        table.ranks = listed if listed > 1 and abs(factor("all_reduce", listed) - ratio) < 0.005 else round(implied)
    else:
        table.ranks = max(listed, 2 if table.operation == "all_reduce" and ratio else listed)
    if table.hosts and table.ranks:
        table.nodes = len(table.hosts) if table.is_whole else -(-table.ranks // max(table.per_node, 1))


def _infer(ratio: float, parts: int, sample: Row, is_unchecked_in_place: bool) -> str:
    """Return the operation by its formulas: what is reduced, whether there is a root, and which sizes are counted."""
    reduces = sample.redop not in ("none", "")
    if sample.root >= 0:
        return "reduce" if reduces else "broadcast" if abs(ratio - 1) < _CLOSE else "gather"
    if parts > 1:
        return "reduce_scatter" if reduces else "alltoall" if is_unchecked_in_place else "all_gather"
    if not reduces:
        return "broadcast" if sample.redop == "" else "sendrecv"
    return "sendrecv" if abs(ratio - 1) < _CLOSE and is_unchecked_in_place else "all_reduce"


_IS = r"['\"]?(?: ?\((?:m?s|tgs)\)| in s)?['\"]?[\s:=]+['\"]?"
"""What stands between a name and its number."""
_SPEED_NUMBER = r"([\d,]*\.?\d+(?:[eE][+-]?\d+)?[kKM]?)"
_TIME = r"((?:(?:\d+ days?, )?\d+:)?\d+:\d\d(?:\.\d+)?|[\d.]+)"
_SPEEDS_STATED = (
    (r"elapsed time per iteration \(ms\): " + _SPEED_NUMBER, "seconds per step", 1e-3),
    (r"elapsed time per iteration \(s\): " + _SPEED_NUMBER, "seconds per step", 1),
    (rf"(?<![A-Za-z])(?<!eval_)(?:step|iter)[_ ]tim(?:e|ing){_IS}{_SPEED_NUMBER} ?ms\b", "seconds per step", 1e-3),
    (rf"(?<![A-Za-z])(?<!eval_)(?:step|iter)[_ ]time? \(ms\)['\"]?[\s:=]+{_SPEED_NUMBER}", "seconds per step", 1e-3),
    (
        rf"(?<![A-Za-z])(?<!eval_)(?:step|iter)[_ ]tim(?:e|ing)(?! ?\(ms\)){_IS}{_SPEED_NUMBER}(?! ?ms)",
        "seconds per step",
        1,
    ),
    (r"^iter \d+: loss [\d.]+, time " + _SPEED_NUMBER + "ms", "seconds per step", 1e-3),
    (r"\bstep: \d+, seconds: " + _SPEED_NUMBER, "seconds per step", 1),
    (rf"[Tt]okens?/s(?:ec)?/(?:device|gpu|GPU){_IS}{_SPEED_NUMBER}", "tokens per second and GPU", 1),
    (rf"tokens per gpu per second{_IS}{_SPEED_NUMBER}", "tokens per second and GPU", 1),
    (r"\btps: " + _SPEED_NUMBER, "tokens per second and GPU", 1),
    (rf"(?<!eval_)[Tt]okens?(?:/s(?:ec)?|[ _]per[ _]sec(?:ond)?){_IS}{_SPEED_NUMBER}", "tokens per second", 1),
    (rf"(?<![\w.]){_SPEED_NUMBER} ?[Tt]okens?(?:/s| per second)", "tokens per second", 1),
    (r"CurrSamplesPerSec=" + _SPEED_NUMBER, "samples per second", 1),
    (rf"(?<!eval_)\b(?:train_)?[Ss]amples(?:[_ ]per[_ ]sec(?:ond)?|/sec){_IS}{_SPEED_NUMBER}", "samples per second", 1),
    (rf"train_runtime{_IS}{_TIME}", IN_ALL, 1),
    (rf"\b(?:Total )?[Tt]raining time(?: \(s\))?[\s:=]+{_TIME}", IN_ALL, 1),
    (r"^real\s+(\d+m[\d.]+)s", IN_ALL, 1),
)
"""What programs print, and by what the number is multiplied."""
_ROUNDED = re.compile(rf"train_steps_per_second{_IS}{_SPEED_NUMBER}")
"""Three decimals: of use where nothing else tells."""
_BAR = re.compile(
    r"(?:([^|%]*?):? +)?\b(\d+)%\|[^|]*\| *(\d+)/(\d+) \[((?:\d+:)?\d+:\d\d)<[^,\]]*, *(?:[\d.]+s/it|[\d.]+it/s)"
)
_OF_ANOTHER = re.compile(
    r"(?i)load|fetch|download|map|filter|token|generat|sav|process|convert|eval|valid|pack|cast|shard|compil|warm|captur"
    r"|predict|test|sanity|infer|prompt"
)
"""What programs show the progress of, besides a training."""


def speeds(lines: Sequence[Evidence]) -> list[Speed]:
    """Return how fast a training runs, by what its lines state."""
    found: dict[tuple[str, int], list[tuple[float, Evidence]]] = {}
    stated: dict[str, Speed] = {}
    for line in lines:
        for kind, (pattern, what, scale) in enumerate(_SPEEDS_STATED):
            if (match := re.search(pattern, line.text)) and (number := _value(match[1])):
                found.setdefault((what, kind), []).append((number * scale, line))
        if (match := _ROUNDED.search(line.text)) and (number := _value(match[1])):
            stated["seconds per step"] = Speed("seconds per step", 1 / number, 1, line)
    stated.update((speed.what, speed) for speed in _read_bars(lines))
    for what in dict.fromkeys(what for _, what, _ in _SPEEDS_STATED):
        if values := max((values for (other, _), values in found.items() if other == what), key=len, default=None):
            numbers = [number for number, _ in values]
            one = max(numbers) if what == IN_ALL else median(numbers)
            stated[what] = Speed(what, one, 1 if what == IN_ALL else len(values), values[-1][1])
    return [stated[what] for what in dict.fromkeys(what for _, what, _ in _SPEEDS_STATED) if what in stated]


def _read_bars(lines: Sequence[Evidence]) -> Iterator[Speed]:
    """Yield what the progress bar of a training states, at its last line."""
    bars: dict[tuple[str, int], tuple[float, int, Evidence]] = {}
    for line in lines:
        match = _BAR.search(line.text) if "%|" in line.text else None
        if match and not _OF_ANOTHER.search(match[1] or ""):
            key = match[1] or "", int(match[4])
            bars[key] = max(
                bars.get(key, (0.0, 0, line)), (_value(match[5]), int(match[3]), line), key=lambda bar: bar[0]
            )
    if not bars:
        return
    (name, steps), (seconds, done, line) = max(bars.items(), key=lambda item: item[1][0])
    if seconds and done:
        yield Speed("seconds per step", seconds / done, 1, line)
        if done == steps and not name:
            yield Speed(IN_ALL, seconds, 1, line)


def _value(text: str) -> float:
    """Return a number or a time in seconds; 0 where it is none."""
    days, _, clock = text.rpartition(" days, " if "days" in text else " day, ")
    parts = re.split("[:m]", clock.replace(",", ""))
    try:
        *larger, last = (float(part.rstrip("kKM")) * {"k": 1e3, "K": 1e3, "M": 1e6}.get(part[-1:], 1) for part in parts)
    except ValueError:
        return 0.0
    seconds: float = int(days or 0) * 86400 + last
    for power, part in enumerate(reversed(larger), 1):
        seconds += part * 60.0**power
    return seconds
