"""The matrix of hosts that fits a width: the worst path from host to host, and hosts that look alike as one.

A fault shows in the row and the column of its host. Hosts that look like their neighbors are folded, so a
job of a thousand ranks fits a terminal, and the odd host has its own row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby

from nccl_inspect.model.job import Selection
from nccl_inspect.report.tables import CORNER, LEFT_OUT, MARKS, Grid, PathClass, grid, letters_of, names_of_ends
from nccl_inspect.util.records import Frozen, frozen
from nccl_inspect.util.text import cut
from nccl_inspect.util.wording import folded

_SPEED = {"P2P": 0, "SHM": 1, "NET": 2}
_NOTHING = "."
_MAX_LABEL = 40


@frozen
class _Worst(Frozen):
    """The worst path from host to host."""

    hosts: list[str]
    cells: Mapping[tuple[str, str], PathClass]
    left_out: frozenset[tuple[str, str]]
    """Pairs of hosts all of whose paths a filter leaves out."""
    letters: Mapping[str, str]

    def text(self, pairs: Iterable[tuple[str, str]]) -> str:
        """The letter of the worst of some pairs of hosts."""
        pairs = list(pairs)
        kinds = [self.cells[pair] for pair in pairs if pair in self.cells]
        if kinds:
            return self.mark(max(kinds, key=_badness))
        return LEFT_OUT if any(pair in self.left_out for pair in pairs) else _NOTHING

    def mark(self, kind: PathClass) -> str:
        """The letter of a kind of path, with a sign if it is not good."""
        return self.letters[kind.label] + MARKS.get(kind.verdict, ("", ""))[0]


def parts(paths: Selection, among: Selection, width: int) -> tuple[list[str], list[str]]:
    """The lines of the matrix, and its legend.

    Args:
        paths: that are shown.
        among: all paths of the job.
        width: in columns; if the hosts do not fit, those that look alike are folded, then neighbors.
    """
    worst = _worst(grid(paths, "host"), paths, among)
    drawn = next(table for groups in _groupings(worst) if _fits(table := _drawn(groups, worst), width, groups))
    return drawn, _legend(worst, paths, drawn)


def _worst(by_host: Grid, paths: Selection, among: Selection) -> _Worst:
    cells = {pair: max(kinds, key=_badness) for pair, kinds in by_host.cells.items()}
    others = names_of_ends(among, by_rank=False) - cells.keys() if len(paths) < len(among) else set()
    return _Worst(by_host.names, cells, frozenset(others), letters_of(paths))


def _badness(kind: PathClass) -> tuple[bool, bool, int, bool, bool]:
    speed = _SPEED.get(kind.detail.partition("/")[0], len(_SPEED))
    return kind.verdict == "fallback", kind.verdict == "unknown", speed, "Socket" in kind.detail, kind.gdr is not True


def _groupings(worst: _Worst) -> Iterator[list[list[str]]]:
    """Each host alone, then neighbors that look alike, then more and more neighbors."""
    yield [[host] for host in worst.hosts]
    seen: dict[str, set[tuple[str, str]]] = {host: set() for host in worst.hosts}
    for (src, dst), kind in worst.cells.items():
        for host, side in ((src, "from"), (dst, "to")):
            seen[host].add(("within" if src == dst else side, worst.mark(kind)))
    yield [list(hosts) for _, hosts in groupby(worst.hosts, lambda host: seen[host])]
    size = 2
    while size < 2 * len(worst.hosts):
        yield [worst.hosts[at : at + size] for at in range(0, len(worst.hosts), size)]
        size *= 2


def _fits(table: Sequence[str], width: int, groups: Sequence[Sequence[str]]) -> bool:
    return max(map(len, table)) <= width or len(groups) == 1


def _drawn(groups: Sequence[Sequence[str]], worst: _Worst) -> list[str]:
    """Head and rows; in a group, paths within hosts precede those between them."""
    cells = _cells(groups, worst)
    senders, receivers = (sorted({pair[side] for pair in cells}) for side in (0, 1))
    rows = [[f"{cut(_label(groups[at]), _MAX_LABEL)} = {at + 1}"] for at in senders]
    for row, sender in zip(rows, senders, strict=True):
        row += [cells.get((sender, at), _NOTHING) for at in receivers]
    head = [CORNER, *(str(at + 1) for at in receivers)]
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    return [" ".join(map(str.rjust, row, widths)) for row in (head, *rows)]


def _cells(groups: Sequence[Sequence[str]], worst: _Worst) -> dict[tuple[int, int], str]:
    group_of = {host: at for at, group in enumerate(groups) for host in group}
    pairs: dict[tuple[int, int, bool], list[tuple[str, str]]] = {}
    for src, dst in [*worst.cells, *worst.left_out]:
        if src in group_of and dst in group_of:
            pairs.setdefault((group_of[src], group_of[dst], src == dst), []).append((src, dst))
    cells: dict[tuple[int, int], str] = {}
    for (src_group, dst_group, _), some in sorted(pairs.items(), key=lambda item: not item[0][2]):
        before = cells.get((src_group, dst_group))
        cells[src_group, dst_group] = f"{before}/{worst.text(some)}" if before else worst.text(some)
    return cells


def _label(hosts: Sequence[str]) -> str:
    """Hosts as one name if only their numbers differ, else the first and the last."""
    names = folded(hosts)
    return names[0] if len(names) == 1 else f"{hosts[0]} … {hosts[-1]}"


def _legend(worst: _Worst, paths: Selection, drawn: Sequence[str]) -> list[str]:
    cells = {cell for line in drawn[1:] for cell in line.partition(" = ")[2].split()}
    verdicts = {kind.verdict for kind in paths.kinds}
    signs = {LEFT_OUT: "left out by the filter", _NOTHING: "no connection line"}
    legend = [f"{letter} = {label}" for label, letter in worst.letters.items()]
    legend += [f"{sign} = {words}" for sign, words in signs.items() if sign in cells]
    is_grouped = len(drawn) - 1 < len({src for src, _ in worst.cells})
    about = (
        "the worst path; P/N: within hosts/between hosts of the row; --format csv has each host"
        if is_grouped
        else "the worst path of each pair of hosts; --format csv has all"
    )
    marks = ", ".join(f"{mark} = {words}" for verdict, (mark, words) in MARKS.items() if verdict in verdicts)
    return [*legend, "; ".join(filter(None, [about, marks]))]
