"""One HTML file: verdict, findings, a matrix of paths, rings and trees, a timeline, the environment.

The page loads nothing from elsewhere, and its content security policy (CSP) forbids it: only the embedded script and
style may run. Text of the log is escaped, or is data that scripts show as text. In ``page/``, ``page.html.j2`` is the
page; ``page.css`` and the ``*.js`` files are put into it, in the order of their names.

Scripts draw from data in which each text is kept once. A large job has a line of the log for each of its paths, and
these lines differ only in numbers that mostly grow evenly: ``0-packing.js`` unpacks them.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from itertools import chain, groupby, pairwise, repeat
from operator import itemgetter
from pathlib import Path
from statistics import median
from typing import Any

from nccl_inspect import bandwidth
from nccl_inspect._version import __version__
from nccl_inspect.answers import rows as answers
from nccl_inspect.event import types as events
from nccl_inspect.judging import remedies
from nccl_inspect.judging.culprits import name_of
from nccl_inspect.model.document import clean
from nccl_inspect.model.inventory import Measured, SourceInfo
from nccl_inspect.model.job import Job, PathKind, Selection
from nccl_inspect.model.versions import cuda
from nccl_inspect.report import Style, digest, jobs, picture
from nccl_inspect.report.tables import KIND_HEAD, UNBOUNDED, fit_table, gdr_word, make_cells, rows_by_kind
from nccl_inspect.report.words import environment
from nccl_inspect.util.grouping import group_values
from nccl_inspect.util.records import pick_fields
from nccl_inspect.util.wording import STATES, ranges

_NUMBER = re.compile(r"(0|[1-9][0-9]{0,14})")
"""What a script reads as a number and writes as the same digits; ``00`` is two of them."""


_Once = dict[str, int]  # values as JSON, each with its number, in the order in which they came


def _number(value: Any, known: _Once) -> int:
    return known.setdefault(json.dumps(value), len(known))


def pack_texts(texts: Iterable[str]) -> dict[str, Any]:
    """Return texts by the numbers in them: the kind of each, and of each kind its words and its columns of numbers."""
    kinds: dict[tuple[str, ...], tuple[int, list[tuple[int, ...]]]] = {}
    order = []
    for text in texts:
        parts = _NUMBER.split(text)
        kind, rows = kinds.setdefault(tuple(parts[::2]), (len(kinds), []))
        rows.append(tuple(map(int, parts[1::2])))
        order.append(kind)
    packed = [[list(words), *map(pack_numbers, zip(*rows, strict=True))] for words, (_, rows) in kinds.items()]
    return {"order": pack_numbers(order), "kinds": packed}


def pack_numbers(numbers: Iterable[int]) -> str:
    """Return the steps from each number to the next, the first from 0; 3 4 5 9 is ``3 1*2 4``."""
    column = list(numbers)
    steps = chain(column[:1], (after - before for before, after in pairwise(column)))
    runs = ((step, sum(1 for _ in same)) for step, same in groupby(steps))
    return " ".join(f"{step}*{times}" if times > 1 else f"{step}" for step, times in runs)


LETTERS = {"p2p": "P", "gdr": "G", "net": "N", "shm": "S", "collnet": "C", "unknown": "U"}
"""The text in the cells of the matrix beside the color."""
_MARK = " NCCL "
_UNSAFE = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"})


def _page_data(job: Job, names: dict[str, str], culprits: dict[str, list[int]]) -> str:
    """Return the data as JSON in which nothing can end the ``script`` element that holds it."""
    drawn = picture.make_views(job)
    hosts = {host.name: list(host.ranks) for host in job.hosts if host.ranks}
    if unknown := sorted(job.paths.ends().difference(*hosts.values())):
        hosts[picture.UNKNOWN_HOST] = unknown
    data = {
        "hosts": list(hosts.items()),
        "gpus": {rank: words for view in drawn for rank in view.gpus if (words := picture.gpu_words(view, rank))},
        "looks": [[look.key, LETTERS[look.key], look.words, look.dashes] for look in picture.LOOKS],
        **_paths(job.paths, names),
        "comms": [_comm(view) for view in drawn if view.rings or view.trees],
        "rules": sorted({finding.rule for finding in job.findings}),
        "culprits": list(culprits.items()),
    }
    text = json.dumps(clean(data), ensure_ascii=True, separators=(",", ":"))
    return text.translate(_UNSAFE)


def _paths(paths: Selection, names: dict[str, str]) -> dict[str, Any]:
    """Return the paths as columns; of each line, what precedes the message apart from the message."""
    kinds, sources, names_of_comms = _Once(), _Once(), _Once()
    number_of = cache(lambda kind, communicators: _number(_kind(kind, communicators, names_of_comms), kinds))
    rows, heads, messages = [], [], []
    for (src, dst, *kind), line in zip(
        paths.values("src", "dst", "kind", "communicators"), paths.first_lines(), strict=True
    ):
        source = _number(names.get(line.source, line.source), sources)
        rows.append((src, dst, number_of(*kind), source, line.line))
        head, mark, message = line.text.partition(_MARK)
        heads.append(head)
        messages.append(mark + message)
    columns = zip(*rows, strict=True) if rows else repeat(())
    return {
        "paths": dict(zip(("src", "dst", "kind", "source", "line"), map(pack_numbers, columns), strict=False)),
        "heads": pack_texts(heads),
        "messages": pack_texts(messages),
        "kinds": list(map(json.loads, kinds)),
        "kindComms": list(map(json.loads, names_of_comms)),
        "sources": list(map(json.loads, sources)),
    }


def _kind(path: PathKind, communicators: Iterable[str], comms: _Once) -> dict[str, Any]:
    """Return what paths have in common; what is not there is left out."""
    everything = {
        "look": picture.find_look(path).key,
        **pick_fields(path, "transport", "detail", "scope"),
        "gdr": None if path.gdr is None else gdr_word(path.gdr),
        "nic": path.nic or (None if path.nic_index is None else f"index {path.nic_index}"),
        "pxn": path.pxn_rank,
        **pick_fields(path, "shared", "link"),
        "channels": ranges(path.channels),
        "comms": [_number(comm, comms) for comm in communicators],
        **pick_fields(path, "verdict", "rules"),
        "also": [f"{way.detail} in {', '.join(way.communicators)}" for way in path.also],
        "guessed": path.guessed,
    }
    return {name: value for name, value in everything.items() if value not in (None, False, (), [])}


def _comm(view: picture.View) -> dict[str, Any]:
    cut = set(view.comm.incomplete_rings)
    ways = _Once()
    edges = [(link.src, link.dst, _number([picture.find_look(link).key, link.detail], ways)) for link in view.links]
    return {
        "name": view.comm.id,
        "title": picture.view_title(view),
        "rings": [
            {
                "channels": picture.channel_words(shape.channels),
                "ranks": pack_numbers(-1 if rank is None else rank for rank in shape.ranks),  # the log may not have it
                "cut": bool(cut & set(shape.channels)),
            }
            for shape in view.rings
        ],
        "trees": [
            {"channels": picture.channel_words(shape.channels), "links": _columns(shape.links, 2)}
            for shape in view.trees
        ],
        "ways": list(map(json.loads, ways)),
        "edges": _columns(edges, 3),
    }


def _columns(rows: Iterable[Sequence[int | None]], width: int) -> list[str]:
    """Return rows by their first column; the order of those that share it stays."""
    ordered = sorted(([-1 if rank is None else rank for rank in row] for row in rows), key=itemgetter(0))
    return [pack_numbers(row[at] for row in ordered) for at in range(width)]


_FOLD_ABOVE = 128  # ranks above which the time line has one row for each host
_LATE = 0.02  # part of the time line by which the last is behind the most, if it is worth a mark
WIDTH = 1000  # of the time line, in its own units
PHASES = (  # from, to, the class of the bar, and what happens there
    ("first", "started", "start", "before init: plug-ins, devices, waiting for others"),
    ("started", "completed", "init", "init: bootstrap, topology, rings and trees"),
    ("completed", "connected", "connect", "until connections are set up (at first use since NCCL 2.22)"),
    ("connected", "ended", "run", "until the communicator is destroyed"),
)
MARKS = ("first", "started", "completed", "connected", "ended")


_MAX_PLOTS, LABELS = 6, 8
LEFT, RIGHT, _TOP, _BOTTOM = 60, 700, 10, 210  # of a plot


def draw_scale(most: float) -> tuple[Callable[[float], float], list[float]]:
    """Return what gives the height of a number in a plot, and the numbers on its scale."""
    step = 10 ** math.floor(math.log10(most / 2))
    step *= 5 if most / step > 2 * LABELS else 2 if most / step > LABELS else 1
    scale = [number * step for number in range(int(most / step) + 1)]
    return lambda number: round(_BOTTOM - number / most * (_BOTTOM - _TOP), 1), scale


def _make_plot(entry: Measured) -> dict[str, Any]:
    first, last = (math.log2(entry.sizes[end].size) for end in (0, -1))
    scale_rate, scale = draw_scale(max(entry.expected_high or 0, entry.measured_gbps) * 1.05)

    def scale_size(size: int) -> float:
        return round(LEFT + (math.log2(size) - first) / (last - first) * (RIGHT - LEFT), 1)

    points = []
    for row in entry.sizes:
        words = f"{bandwidth.rate_text(row.gbps)} GB/s at {bandwidth.size_text(row.size)}"
        points.append((scale_size(row.size), scale_rate(row.gbps), words, row in entry.dips))
    band = None  # top and height of what is expected
    if entry.expected_low and entry.expected_high:
        top = scale_rate(entry.expected_high)
        band = top, round(scale_rate(entry.expected_low) - top, 1) or 1
    every = max(1, -(-len(entry.sizes) // LABELS))
    source = entry.expected_source or ""
    return {
        "caption": bandwidth.describe_measurement(entry),
        "verdict": entry.verdict,
        "line": " ".join(f"{x},{y}" for x, y, *_ in points),
        "points": points,
        "band": band,
        "rates": [(scale_rate(number), f"{number:g}") for number in scale],
        "sizes": [(scale_size(row.size), bandwidth.size_text(row.size)) for row in entry.sizes[::-1][::every]],
        "source": source if source.startswith("http") else "",  # the page that states what is expected
    }


def answer_table(asked: answers.Answer, job: Job) -> tuple[list[str], list[tuple[bool, list[str]]]]:
    """Return the head of the table of an answer, and its rows with whether they are bad."""
    rows = asked.rows(job)
    table = fit_table(asked.columns, make_cells(asked.columns, rows), UNBOUNDED)
    return table.head, list(zip(map(asked.is_bad, rows), table.body, strict=True))


def _list_versions(job: Job, names: dict[str, str]) -> list[tuple[str, ...]]:
    counts: dict[str, Counter[str]] = {}
    first: dict[tuple[str, str], tuple[str, str]] = {}
    for notice in job.notices:
        match notice.event:
            case events.NcclVersion(version=version):
                name, value = "NCCL", version
            case events.CudaDriver(cuda_version=number):
                name, value = "CUDA driver", cuda(str(number))
            case events.PluginStatus(kind=kind, status="loading", plugin=plugin, detail=detail) if plugin:
                name, value = f"{kind} plug-in", f"{plugin} {detail or ''}".strip()
            case _:
                continue
        counts.setdefault(name, Counter())[value] += len(notice.processes)
        line = notice.evidence[0]
        where = f"{names.get(line.source, line.source)}:{line.line}"
        first.setdefault((name, value), (ranges(notice.ranks) or "?", where))
    notes = {name: answers.mark_unusual(values) for name, values in counts.items()}
    return [(name, value, who, notes[name][value], where) for (name, value), (who, where) in sorted(first.items())]


def _describe_condition(source: SourceInfo) -> str:
    if source.problem:
        return "not read to its end"
    lines = (source.damaged_lines, source.unrecognised_lines, source.repaired_lines)
    troubles = zip(lines, ("damaged", "not recognized", "repaired"), strict=True)
    turned = ["newest line first"] if source.newest_first else []
    return ", ".join([*turned, *(f"{number:,} {what}" for number, what in troubles if number)]) or "sound"


def make_timeline(job: Job, names: dict[str, str]) -> dict[str, Any] | None:
    """Return the time line of init, from the first line of any rank; None where the log has no times.

    A row is a rank, or the ranks of a host. Each of its bars has the class of the phase, begin and width.
    """
    timed = [row for row in job.timeline if "started" in row.stamps or "completed" in row.stamps]
    if not timed:
        return None
    begin = min((stamp for row in timed for stamp in row.stamps.values()), key=lambda stamp: stamp.seconds)
    # Init may be seconds of a run of days: the bars end soon after it.
    init = [row.stamps[name] for row in timed for name in MARKS[:-1] if name in row.stamps]
    seconds = (max(stamp.seconds for stamp in init) - begin.seconds) * 1.05 or 1e-6
    by_host = len(timed) > _FOLD_ABOVE
    # Of a host the first line of any of its ranks, and when the last of them got how far.
    members = group_values((row.host, row) for row in timed).items() if by_host else [(r.host, [r]) for r in timed]
    parts = []
    for host, some in members:
        who = ranges(row.rank for row in some if row.rank is not None) or ("?" if by_host else f"pid {some[0].pid}")
        moved = {mark: [row.stamps[mark] for row in some if mark in row.stamps] for mark in MARKS}
        ends = {mark: (min if mark == "first" else max) for mark in MARKS if moved[mark]}
        parts.append((who, host, {mark: end(moved[mark], key=lambda it: it.seconds) for mark, end in ends.items()}))
    latest = dict.fromkeys(MARKS, math.inf)
    for mark in MARKS:
        moments = [stamps[mark].seconds for _, _, stamps in parts if mark in stamps]
        if len(moments) > 1 and max(moments) - median(moments) >= max(_LATE * seconds, 0.01):
            latest[mark] = max(moments)  # well after the others
    rows = []
    for who, host, stamps in parts:
        line = stamps.get("started") or stamps.get("completed")
        where = f"{names.get(line.source, line.source)}:{line.line}" if line else ""
        bars = []
        for start, end, kind, _ in PHASES:
            if start in stamps and end in stamps and stamps[end].seconds >= stamps[start].seconds:
                x = (stamps[start].seconds - begin.seconds) / seconds * WIDTH
                width = min((stamps[end].seconds - stamps[start].seconds) / seconds * WIDTH, WIDTH - x)
                bars.append((kind, round(x, 1), round(max(width, 1.0), 1)))
        row: dict[str, Any] = {"who": who, "host": host, "bars": bars, "where": where}
        row["offsets"] = [f"{stamps[name].seconds - begin.seconds:.3f}" if name in stamps else "" for name in MARKS]
        row["late"] = [name in stamps and stamps[name].seconds >= latest[name] for name in MARKS]
        rows.append(row)
    step = 10 ** math.floor(math.log10(seconds / 4))
    step *= next(factor for factor in (1, 2, 5, 10) if seconds / (step * factor) <= 10)  # four to ten ticks
    ticks = [(round(n * step / seconds * WIDTH, 1), f"{n * step:g} s") for n in range(int(seconds / step) + 1)]
    return {"rows": rows, "begin": begin.time.strip("[]"), "seconds": seconds, "ticks": ticks, "by_host": by_host}


SUFFIXES = ("htm",)
_PAGE = Path(__file__).parent / "page"
_ANSWERS = {"hosts": answers.HOSTS, "nics": answers.NICS, "env": answers.ENV, "ranks": answers.RANKS}
"""The tables that commands also print."""


def render(job: Job, style: Style) -> str:
    """Return the page; it needs no other file and no network."""
    from markupsafe import Markup

    names = digest.short_names(job)
    used = {picture.find_look(kind) for kind in job.paths.kinds}
    culprits = {name_of(one): one.ranks for finding in job.findings for one in finding.culprits if one.ranks}
    plots = sorted((one for one in job.bandwidth if len(one.sizes) > 1), key=lambda one: one.verdict != "low")
    outline = digest.outline_findings(job, style.verbose)
    script = "\n".join(file.read_text(encoding="utf-8") for file in sorted(_PAGE.glob("*.js")))
    context: dict[str, Any] = {
        "job": job,
        "version": __version__,
        "word": digest.verdict_word(job),
        "reason": digest.reason(job),
        "head": digest.label_lines(digest.make_head(job, is_now=True)),
        "jobs": jobs,
        "story": digest.story_lines(job) if digest.has_story(job) else [],
        "story_rows": digest.story_rows(job) if digest.has_story(job) else [],
        "culprits": culprits,
        "facts": [(label, text) for label, text in digest.list_facts(job) if label not in ("log", "environment")],
        "names": names,
        "outline": outline,
        "numbers": Counter(entry.finding.severity for entry in outline),
        "nested": sum(len(entry.nested) for entry in outline),
        "kind_head": KIND_HEAD,
        "kinds": rows_by_kind(job.paths),
        "looks": [(look, LETTERS[look.key]) for look in picture.LOOKS if look in used],
        "gdr": {gdr_word(kind.gdr) for kind in job.paths.kinds},
        "verdicts": {kind.verdict for kind in job.paths.kinds},
        "answers": {name: answer_table(asked, job) for name, asked in _ANSWERS.items()},
        "versions": _list_versions(job, names),
        "capture": remedies.capture_command(job),
        "plots": [_make_plot(entry) for entry in plots[:_MAX_PLOTS]],
        "timeline": make_timeline(job, names),
        "phases": PHASES,
        "width": WIDTH,
        "soundness": _describe_condition,
        # Own files, and JSON with log text escaped, so that it cannot end the script.
        "script": Markup(script),  # noqa: S704
        "data": Markup(_page_data(job, names, culprits)),  # noqa: S704
        **page_look(job.verdict),
        "script_hash": _hash(f"\n{script}\n"),
    }
    pages = environment(_PAGE)
    pages.globals.update(
        meaning=digest.meaning, who=digest.describe_subject, steps_under=digest.list_own_steps, states=STATES
    )
    return pages.get_template("page.html.j2").render(context) + "\n"


def page_look(verdict: str) -> dict[str, Any]:
    """Return the looks that every page gets."""
    from markupsafe import Markup

    css = (_PAGE / "page.css").read_text(encoding="utf-8")
    return {"css": Markup(css), "css_hash": _hash(f"\n{css}\n"), "verdict": verdict}  # noqa: S704 - our own file


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
