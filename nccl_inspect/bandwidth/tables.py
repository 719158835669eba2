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

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import field
from itertools import chain
from math import isfinite
from operator import attrgetter
from statistics import median
from typing import Any

from nccl_inspect.bandwidth import compile_line, load_figures
from nccl_inspect.bandwidth.lines import CELLS, TAG, TYPES, is_kept
from nccl_inspect.model.evidence import Evidence
from nccl_inspect.model.inventory import IN_ALL, Speed
from nccl_inspect.util.records import Frozen, Record
from nccl_inspect.util.text import encode

_FIGURES = load_figures("benchmarks")
_FORM = {
    name: compile_line(line, types=TYPES, tag=TAG, cells=CELLS, name="|".join(_FIGURES["operations"]))
    for name, line in _FIGURES["forms"].items()
}
_OTHERS = [(form, compile_line(form["line"])) for form in _FIGURES["others"]]
_CELLS = 4
_MOST_BETWEEN = 5000  # lines of NCCL at most between the parts of a row
_CLOSE = 0.02
_SHIFT = {"": 0, "B": 0, "K": 10, "M": 20, "G": 30, "T": 40}
_ONE_DIGIT = str.maketrans("123456789", "0" * 9)
PROGRAM = "the program"  # of a user, which prints a sentence
_NONE = -1.0  # stands for N/A


class Row(Frozen):
    """One size, out of place or in place; bandwidths in GB/s."""

    size: int
    algbw: float
    busbw: float
    line: Evidence
    in_place: bool = False
    errors: float | None = None  # wrong values, or the largest error in old releases; None where nothing was checked
    type: str = ""
    redop: str = ""
    root: int = -1
    count: int = 0


class Table(Record):
    """The results of one run of a benchmark."""

    tool: str = "nccl-tests"
    operation: str = ""
    is_sure: bool = True  # whether the operation is stated, or nothing else fits
    ranks: int = 0  # 0 for unknown
    nodes: int = 0
    is_whole: bool = False  # whether the list of ranks is
    hosts: dict[str, set[int]] = field(default_factory=dict)  # the devices that are listed, by host
    gpus: set[str] = field(default_factory=set)
    rows: list[Row] = field(default_factory=list)
    warmup: int | None = None
    counts_wrong: bool | None = None  # whether the last column counts wrong values; None where there is no head
    columns: int = 0  # of one placement, as the head has them; 0 where there is none
    is_in_place: bool = False  # whether there are results in place only
    pids: set[int] = field(default_factory=set)
    start: int = 0  # the order of the line that names its program
    fits: bool = True  # whether the rows can be those of the operation that is stated
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
    reader = _Reader([line for line in lines if line.text.startswith("{") or is_kept(encode(line.text), of_speed=())])
    reader.read()
    found = [table for table in reader.tables if table.rows]
    for table in found:
        best = max(table.rows, key=attrgetter("algbw"))
        if table.tool == "nccl-tests":
            _conclude(table)
        elif not table.ranks and table.operation == "all_reduce" and best.algbw > 1:
            ratio = best.busbw / best.algbw
            table.ranks = max(round(2 / (2 - ratio)), 0) if ratio < 2 - 1e-4 else 0
    return found


class _Reader:
    """Goes through the lines; a table ends where the next one begins."""

    def __init__(self, lines: Sequence[Evidence]) -> None:
        self.tables: list[Table] = []
        self._lines = lines
        self._program = ""  # of a command in front of its table
        self._size, self._scale = 0.0, 1.0  # of rows that do not state theirs
        self._columns = ["busbw", "algbw"]
        self._is_matrix = False

    def read(self) -> None:
        place = 0
        source = None
        while place < len(self._lines):
            line = self._lines[place]
            if line.source != source:
                self._begin()
                source, self._program = line.source, ""
            text = _FORM["tag"].sub("", line.text).expandtabs().rstrip()
            if "{" in text and any(key in text for key in ('"bus_bw"', '"bandwidth_matrix"', '"coll_perf"')):
                with suppress(ValueError, KeyError, TypeError, AttributeError):  # a program may print anything
                    import json  # few logs have such a document

                    self._take_document(json.loads(text[text.index("{") :]), line)
            elif match := _FORM["row"].search(text):
                place += self._take_row(match, line, place)
            elif not self._take_head(text, line):
                self._take_other(text, line)
            place += 1

    def _begin(self, tool: str = "nccl-tests", operation: str = "", **values: Any) -> None:
        self._table = Table(tool=tool, operation=_plain_operation(operation), **values)
        self.tables.append(self._table)
        self._is_matrix = False

    def _add(self, line: Evidence, size: float, algbw: float, busbw: float) -> None:
        self._table.rows.append(Row(round(size), algbw, busbw, line))

    def _take_head(self, text: str, line: Evidence) -> bool:
        """Take in what nccl-tests print around their rows; return whether it is that."""
        table = self._table
        if match := _FORM["start"].search(text):
            self._begin(operation=match[1].partition("_perf")[0], start=line.order)
        elif match := _FORM["options"].search(text):
            if table.rows or table.warmup is not None or table.tool != "nccl-tests":
                self._begin()
            warmup = _FORM["warmup"].search(text)
            self._table.warmup = int(warmup[1]) if warmup else None
            self._table.operation = self._table.operation or self._program
        elif match := _FORM["rank"].search(text):
            if table.rows:
                self._begin(operation=self._program)
            self._table.listed.add(int(match[1]))
            self._table.pids.add(int(match[2]))
            self._table.hosts.setdefault(match[3], set()).add(int(match[4]))
            if match[5].strip():
                self._table.gpus.add(match[5].strip())
        elif _FORM["head"].search(text):
            if table.rows or table.tool != "nccl-tests":
                self._begin(operation=self._program, is_in_place=table.is_in_place and not table.rows)
            table = self._table
            names = text.split()[text.split().index("algbw") - 1 :]
            placements = names.count("algbw")
            names = names[: len(names) - (names[-1] == "timestamp")]
            table.counts_wrong, table.columns = "#wrong" in names, len(names) // placements
            table.operation = table.operation or self._program
            table.is_in_place &= placements == 1
        elif _FORM["placement"].match(text):
            if table.rows:
                self._begin(operation=self._program)
            self._table.is_in_place = True
        elif match := _FORM["program"].search(text):
            self._program = _plain_operation(match[1])
            if table.rows:
                self._begin(operation=self._program)
        else:
            return False
        return True

    def _take_row(self, match: re.Match[str], line: Evidence, place: int) -> int:
        """Take in a row of nccl-tests; return on how many of the following lines it continues."""
        rest = _FORM["message"].sub("", match[4])
        rows, taken, texts = self._rows(match, line, rest, is_joined=False), 0, [rest]
        for more, other in enumerate(self._lines[place + 1 : place + 3], 1):
            text = _FORM["tag"].sub("", other.text).rstrip()
            is_near = other.source == line.source and 0 < other.line - line.line < _MOST_BETWEEN
            if len(rows) > 1 or not (is_near and _FORM["rest"].match(text)):
                break
            texts.append(text)
            joined = (self._rows(match, line, glue.join(texts), is_joined=True) for glue in (" ", ""))
            if better := next((each for each in joined if len(each) > 1 or (each and not rows)), None):
                rows, taken = better, more
        self._table.rows += rows
        return taken

    def _rows(self, match: re.Match[str], line: Evidence, text: str, is_joined: bool) -> list[Row]:
        """Return the rows of both placements, by what follows the type; none where they are not whole."""
        text = _FORM["dated"].sub("", text)
        words = text.split()
        redop = words.pop(0) if words and words[0].isalpha() and words[0] not in ("nan", "inf") else ""
        values = [_read_number(word) for word in words]
        if any(value is None for value in values):
            return []
        width = self._table.columns or next(wide for wide in (4, 5, 8) if len(values) <= 2 * wide + 1 or wide == 8)
        has_root = len(values) % width == 1
        root = int(words[0]) if has_root and words[0].isdecimal() else -1
        values = values[has_root:]
        if not values or len(values) % width or len(values) > 2 * width:
            return []
        last = _CELLS if width == _CELLS + 1 else _CELLS - 1  # behind the bandwidth of copies that overlap
        only_in_place = len(values) == width and (
            self._table.is_in_place or _FORM["only-in-place"].search(text) is not None
        )
        rows = []
        for at in range(0, len(values), width):
            algbw, busbw = map(_make_finite, values[at + 1 : at + 3])
            errors = None if values[at + last] == _NONE else values[at + last]
            kind = match[3], redop, root, int(match[2])
            rows.append(Row(int(match[1]), algbw, busbw, line, only_in_place or at > 0, errors, *kind))
        if is_joined and len(rows) > 1:  # joined at the wrong place, the two halves do not agree
            ratios = [row.busbw / row.algbw for row in rows if row.algbw > 1]
            if len(ratios) > 1 and abs(ratios[0] - ratios[1]) > _CLOSE * ratios[0]:
                return []
        return rows

    def _take_document(self, document: Any, line: Evidence) -> None:
        """Take in what nccl-tests with ``-J``, nvbandwidth with ``-j`` and NCCL Inspector write."""
        for case in _list_entries(document.get("nvbandwidth"), "testcases"):
            self._begin("nvbandwidth", str(case.get("name")))
            for cell in chain.from_iterable(case.get("bandwidth_matrix") or ()):
                if rate := _make_finite(cell):
                    self._add(line, 0, rate, rate)
        if call := document.get("coll_perf"):
            header = document.get("header", {})
            name = _plain_operation(re.sub(r"(?<=[a-z])(?=[A-Z])", "_", str(call["coll"])).lower())
            size, algbw, busbw = (float(call[f"coll_{key}"]) for key in ("msg_size_bytes", "algobw_gbs", "busbw_gbs"))
            ranks, nodes = int(header.get("n_ranks") or 0), int(header.get("nnodes") or 0)
            if ("NCCL Inspector", name, ranks) != (self._table.tool, self._table.operation, self._table.ranks):
                self._begin("NCCL Inspector", name, ranks=ranks, nodes=nodes)
            self._add(line, size, algbw, busbw)
        if not (results := _list_entries(document, "results")):
            return
        self._begin()
        table, config = self._table, document.get("config")
        for device in _list_entries(config, "devices") or _list_entries(document, "devices"):
            table.listed.add(int(device.get("rank", 0)))
            table.hosts.setdefault(str(device.get("hostname")), set()).add(int(device.get("device", 0)))
            table.gpus.add(str(device.get("device_info")))
        if isinstance(config, dict) and isinstance(warmup := config.get("warmup_iters"), int):
            table.warmup = warmup
        program = _FORM["program"].search(" ".join(map(str, document.get("args") or ())))
        table.operation, table.counts_wrong = _plain_operation(program[1]) if program else "", True
        for result in results:
            size, count = (int(_make_finite(result.get(name))) for name in ("size", "count"))
            dtype, redop, root = (str(result.get(name, "")).strip() for name in ("type", "redop", "root"))
            for place in ("out_of_place", "in_place"):
                if isinstance(cells := result.get(place), dict):
                    algbw, busbw = (_make_finite(cells.get(name)) for name in ("alg_bw", "bus_bw"))
                    wrong = _read_number(str(cells.get("nwrong")))
                    errors = wrong if wrong is not None and isfinite(wrong) else None
                    kind = dtype, redop, int(root) if root.isdecimal() else -1, count
                    table.rows.append(Row(size, algbw, busbw, line, place == "in_place", errors, *kind))

    def _take_other(self, text: str, line: Evidence) -> None:
        for form, pattern in _OTHERS:
            tool = self._table.tool
            if form.get("of", tool) != tool or not (match := pattern.search(text)):
                continue
            named = match.groupdict()
            shift = _SHIFT.get(named.get("unit") or "", 0)
            size = float(named.get("size") or 0) * int(named.get("times") or 1) * (1 << shift)
            if "begins" in form:
                if tool != form["begins"] or "goes_on" not in form:
                    operation = form.get("operation", "{operation}").format_map(named).lower()
                    number = int(named.get("ranks") or form.get("ranks", 0))
                    self._begin(form["begins"], operation, ranks=number, nodes=form.get("nodes", 0))
                self._size, self._scale = size, 1.0
            self._scale, self._columns = form.get("scale", self._scale), form.get("columns", self._columns)
            named |= {name: named["rate"] for name in ("algbw", "busbw") if "rate" in named}
            if "first" in named:
                named |= zip(self._columns, (named["first"], named["second"]), strict=True)
            if "busbw" in named:
                algbw, busbw = (float(named.get(name) or 0) * self._scale for name in ("algbw", "busbw"))
                self._add(line, size or self._size, algbw, busbw)
            return
        tool = self._table.tool
        if (match := _FORM["sentence"].search(text)) and (
            topic := _FORM["topic"].search(text[: match.start()].lower())
        ):
            if (tool, self._table.operation) != (PROGRAM, _plain_operation(topic[1])):
                ranks = _FORM["ranks"].search(text)
                self._begin(PROGRAM, topic[1], ranks=int(ranks[1] or ranks[2]) if ranks else 0)
            stated = re.search(r"\balg_?bw[:= ]+([\d.]+)", text)
            self._add(line, int(match[1]), float(stated[1]) if stated else 0.0, float(match[2]))
        elif match := _FORM["matrix"].search(text):
            if tool != "nvbandwidth" and match[3] == "GB":
                name = "_".join(filter(None, ("p2p", (match[1] or "").lower() + "directional", match[2])))
                self._begin("p2pBandwidthLatencyTest", name)
            self._is_matrix = match[3] == "GB"  # else it is about latency
        elif self._is_matrix and (match := _FORM["matrix-row"].match(text)):
            is_square = tool != "nvbandwidth"  # a GPU with itself
            for column, cell in enumerate(match[2].split()):
                if "." in cell and not (is_square and column == int(match[1])):
                    self._add(line, 0, _make_finite(cell), _make_finite(cell))


def _read_number(word: str) -> float | None:
    if word == "N/A":
        return _NONE
    try:
        return float(word.rstrip("*"))
    except ValueError:
        return None


def _make_finite(value: object) -> float:
    number = _read_number(str(value))
    return number if number is not None and number != _NONE and isfinite(number) else 0.0


def _list_entries(document: Any, name: str) -> list[dict[str, Any]]:
    value = document.get(name) if isinstance(document, dict) else None
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def _plain_operation(name: str) -> str:
    name = name.removesuffix("_perf").removesuffix("_into_tensor").removesuffix("_tensor").removesuffix("_base")
    known = {"allreduce": "all_reduce", "allgather": "all_gather", "reducescatter": "reduce_scatter"}
    return known.get(name, "alltoall" if name in ("all_to_all", "all_to_all_single") else name)


def _conclude(table: Table) -> None:
    is_headless = table.counts_wrong is None
    if is_headless:  # the root came with the count
        has_root = any(row.root >= 0 or row.redop for row in table.rows)
        table.counts_wrong = has_root and not any(row.errors and 0 < row.errors < 1 for row in table.rows)
    listed = max(table.listed, default=-1) + 1
    table.is_whole = listed > 0 and len(table.listed) == listed
    clear = [row for row in table.rows if row.algbw >= 1 and row.busbw]
    clear = clear or [row for row in table.rows if row.algbw > 0.1]
    ratio = median(row.busbw / row.algbw for row in clear) if clear else 0.0
    sample = table.rows[-1]
    shares = []
    for row in table.rows:
        bits = re.search(r"64|32|16|8", row.type)
        width = _FIGURES["bytes"].get(row.type) or (int(bits[0]) // 8 if bits else 4)
        shares += [row.size / (row.count * width)] if row.count else []
    share = median(shares) if shares else 1
    parts = round(share) if share > 1 + _CLOSE else 1
    checked = [row for row in table.rows if row.errors is not None]
    is_unchecked_in_place = bool(checked) and not any(row.in_place for row in checked)
    if not table.operation:
        topic = _FORM["topic"].search(sample.line.source.rpartition("/")[2].lower())
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
        table.ranks = listed if listed > 1 and abs(2 * (listed - 1) / listed - ratio) < 0.005 else round(implied)
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


def speeds(lines: Sequence[Evidence]) -> list[Speed]:
    """Return how fast a training runs, by what its lines state (``figures/speeds.toml``)."""
    lines = [line for line in lines if is_kept(encode(line.text), words=())]
    if not lines:  # nor is there a pattern to compile
        return []
    data = load_figures("speeds")
    kinds = [(compile_line(one["line"], **data["parts"]), one["what"], one.get("times", 1)) for one in data["speeds"]]
    rounded = re.compile(data["rounded"])
    found: dict[tuple[str, int], list[tuple[float, Evidence]]] = {}
    fitting: dict[
        str, list[int]
    ] = {}  # the kinds of a line by what it looks like: for no pattern it matters which digit
    stated: dict[str, Speed] = {}
    for line in lines:
        look = line.text.translate(_ONE_DIGIT)
        if look not in fitting:
            fitting[look] = [kind for kind, (pattern, _, _) in enumerate(kinds) if pattern.search(look)]
        for kind in fitting[look]:
            pattern, what, scale = kinds[kind]
            if (match := pattern.search(line.text)) and (number := _value(match[1])):
                found.setdefault((what, kind), []).append((number * scale, line))
        if (match := rounded.search(line.text)) and (number := _value(match[1])):
            stated["seconds per step"] = Speed("seconds per step", 1 / number, 1, line)
    stated.update((speed.what, speed) for speed in _read_bars(lines, *map(re.compile, data["bars"])))
    order = dict.fromkeys(what for _, what, _ in kinds)
    for what in order:
        if values := max((values for (other, _), values in found.items() if other == what), key=len, default=None):
            numbers = [number for number, _ in values]
            one = max(numbers) if what == IN_ALL else median(numbers)
            stated[what] = Speed(what, one, 1 if what == IN_ALL else len(values), values[-1][1])
    return [stated[what] for what in order if what in stated]


def _read_bars(lines: Sequence[Evidence], form: re.Pattern[str], of_another: re.Pattern[str]) -> Iterator[Speed]:
    bars: dict[tuple[str, int], tuple[float, int, Evidence]] = {}
    for line in lines:
        match = form.search(line.text) if "%|" in line.text else None
        if match and not of_another.search(match[1] or ""):
            key, bar = (match[1] or "", int(match[4])), (_value(match[5]), int(match[3]), line)
            bars[key] = max(bars.get(key, bar), bar, key=lambda bar: bar[0])
    if not bars:
        return
    (name, steps), (seconds, done, line) = max(bars.items(), key=lambda item: item[1][0])
    if seconds and done:
        yield Speed("seconds per step", seconds / done, 1, line)
        if done == steps and not name:
            yield Speed(IN_ALL, seconds, 1, line)


def _value(text: str) -> float:
    days, _, clock = text.rpartition(" days, " if "days" in text else " day, ")
    parts = re.split("[:m]", clock.replace(",", ""))
    try:
        numbers = [float(part.rstrip("kKM")) * {"k": 1e3, "K": 1e3, "M": 1e6}.get(part[-1:], 1) for part in parts]
    except ValueError:
        return 0.0
    return int(days or 0) * 86400 + sum(part * 60.0**power for power, part in enumerate(reversed(numbers)))
