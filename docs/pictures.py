"""Makes the pictures of the documentation: ``python docs/pictures.py`` draws what the terminal shows as SVG, and the
rooms of the package.

``--browser`` also takes pictures of the HTML report, and of the page that judges logs where ``make try`` has built it;
it needs Chromium, and playwright to drive it. ``--check`` only tells whether an SVG drifted.
"""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click
import layers
from click.testing import CliRunner

import nccl_inspect
from nccl_inspect import report
from nccl_inspect.cli import cli
from nccl_inspect.report import Style

if TYPE_CHECKING:
    from playwright.sync_api import Browser

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs" / "pictures"
FALLBACK = "sample_logs/efa-provider-missing-socket-fallback/job.log"
TRAINING = "sample_logs/socket-2node-tp4-dp2/job.log"
COLUMNS = 100
WIDE, HIGH, PAD = 8.4, 18, 16
"""Of a letter, of a line, and around the text."""
SGR = re.compile(r"\x1b\[([0-9;]*)m")
CLASSES = {"1": "bold", "2": "dim", "31": "red", "32": "green", "33": "yellow", "36": "cyan"}
CSS = """text { font: 14px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; fill: #d7dce0 }
.bold { font-weight: bold } .dim { fill: #939da6 } .red { fill: #ff8a80; font-weight: bold }
.green { fill: #7fd69a } .yellow { fill: #ffb74d; font-weight: bold } .cyan { fill: #7cc8e8 }
.prompt { fill: #7fd69a }"""


class Shot(NamedTuple):
    """A picture of the HTML report."""

    name: str
    log: str
    part: str
    """The section at the top; empty for the beginning."""
    width: int
    height: int
    dark: bool = False


SHOTS = (
    Shot("report", FALLBACK, "", 1180, 860),
    Shot("report-paths", TRAINING, "paths", 1180, 640),
    Shot("report-dark", TRAINING, "rings", 1180, 460, dark=True),
)

TRY = ROOT / "build" / "try" / "nccl-inspect-try.html"
"""The page that judges logs in the browser, in one file."""
_LOADING = 120_000
"""Milliseconds until the page has a Python and has judged its sample."""


def main() -> None:
    """Write the pictures, or with ``--check`` exit with status 1 where an SVG is not what the code gives."""
    arguments = sys.argv[1:]
    stale = False
    os.chdir(ROOT)  # the pictures name the samples as a reader would
    FOLDER.mkdir(exist_ok=True)
    for name, text in [*terminal_pictures(), ("layers", layers.svg()), ("measured", draw_measured())]:
        path = FOLDER / f"{name}.svg"
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        stale = True
        if "--check" not in arguments:
            path.write_text(text, encoding="utf-8")
        click.echo(f"{path.relative_to(ROOT)}: {'out of date' if '--check' in arguments else 'written'}")
    if "--browser" in arguments:
        take(SHOTS)
    sys.exit(1 if stale and "--check" in arguments else 0)


def terminal_pictures() -> Iterator[tuple[str, str]]:
    """Yield what the terminal shows, by name of the picture."""
    job = nccl_inspect.read(FALLBACK)
    text = report.load("text").render(job, Style(width=COLUMNS, color=True))
    yield "summarize", svg(f"nccl-inspect summarize {FALLBACK}", text.splitlines())
    done = CliRunner().invoke(cli, ["paths", "--matrix", FALLBACK])
    yield "matrix", svg(f"nccl-inspect paths --matrix {FALLBACK}", done.stdout.splitlines())


def svg(command: str, lines: list[str]) -> str:
    """Return a terminal window with a command and its coloured output; each piece of text stands at its column."""
    rows = [_text(0, [(0, "prompt", "$"), (2, "", command)])]
    rows += [_text(number, list(_pieces(line))) for number, line in enumerate(lines, 1)]
    width = COLUMNS * WIDE + 2 * PAD
    height = (len(lines) + 1) * HIGH + 2 * PAD
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" width="{width:.0f}" '
            f'height="{height}" role="img">',
            f"<title>{escape(command)}</title>",
            f"<style>{CSS}</style>",
            '<rect width="100%" height="100%" rx="8" fill="#15191d"/>',
            *filter(None, rows),
            "</svg>",
            "",
        ]
    )


def _pieces(line: str) -> Iterator[tuple[int, str, str]]:
    """Yield the pieces of a line with their columns and the class of their colour."""
    column, kind = 0, ""
    for number, part in enumerate(SGR.split(line)):
        if number % 2:
            kind = CLASSES.get(part, "")
            continue
        for found in re.finditer(r"\S+(?: \S+)*", part):
            yield column + found.start(), kind, found[0]
        column += len(part)


def _text(row: int, pieces: list[tuple[int, str, str]]) -> str:
    y = PAD + row * HIGH + 13
    spans = [
        f'<tspan x="{PAD + column * WIDE:.1f}" textLength="{len(words) * WIDE:.1f}" lengthAdjust="spacingAndGlyphs"'
        + (f' class="{kind}"' if kind else "")
        + f">{escape(words)}</tspan>"
        for column, kind, words in pieces
    ]
    return f'<text y="{y}">{"".join(spans)}</text>' if spans else ""


def draw_measured() -> str:
    """Draw the bus bandwidth of an all-reduce by message size, for each path between four H200."""
    width, height, left, top, right, below = 760, 420, 56, 44, 150, 44
    colors = ("#1b6ca8", "#4a9c5d", "#8a6d1d", "#c05621", "#a23b72", "#5b5f97", "#444c52")
    sizes, rates = (12, 32), (-2, 3)  # powers of 2 in bytes, of 10 in GB/s

    def place_size(size: float) -> float:
        return left + (math.log2(size) - sizes[0]) / (sizes[1] - sizes[0]) * (width - left - right)

    def place_rate(rate: float) -> float:
        return top + (rates[1] - math.log10(rate)) / (rates[1] - rates[0]) * (height - top - below)

    title = "All-reduce on 4 H200 by path: bus bandwidth (GB/s) by message size"
    drawn = [f'<text class="title" x="{left}" y="26">{title}</text>']
    for power in range(rates[0], rates[1] + 1):
        y = place_rate(10.0**power)
        drawn.append(f'<path class="grid" d="M{left} {y:.1f}H{width - right}"/>')
        drawn.append(f'<text class="left" x="{left - 8}" y="{y + 4:.1f}">{10.0**power:g}</text>')
    for power, name in ((12, "4 KiB"), (20, "1 MiB"), (30, "1 GiB")):
        x = place_size(2.0**power)
        drawn.append(f'<path class="grid" d="M{x:.1f} {top}V{height - below}"/>')
        drawn.append(f'<text class="mid" x="{x:.1f}" y="{height - below + 20}">{name}</text>')
    curves = []
    for results in sorted((ROOT / "sample_logs" / "measured-4").glob("*/results.json")):
        rows = [row for row in json.loads(results.read_text("utf-8")) if row["operation"] == "all_reduce"]
        points = [(place_size(row["bytes"]), place_rate(row["busbw"])) for row in rows if row["bytes"] >= 2 ** sizes[0]]
        curves.append((points, results.parent.name))
    curves.sort(key=lambda curve: curve[0][-1][1])
    beside = 0.0
    for color, (points, name) in zip(colors, curves, strict=True):
        line = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
        beside = max(beside + 16, points[-1][1] + 4)
        drawn.append(f'<path d="M{line}" stroke="{color}"/>')
        drawn.append(f'<text x="{width - right + 8}" y="{beside:.1f}" style="fill:{color}">{name}</text>')
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
            'role="img">',
            f"<title>{title}</title>",
            '<style>text { font: 13px ui-sans-serif, system-ui, "DejaVu Sans", sans-serif; fill: #1c2328 } '
            ".title { font-weight: bold } .left { text-anchor: end } .mid { text-anchor: middle } "
            "path { fill: none; stroke-width: 2 } .grid { stroke: #dde4e8; stroke-width: 1 }</style>",
            '<rect width="100%" height="100%" fill="#ffffff"/>',
            *drawn,
            "</svg>",
            "",
        ]
    )


def take(shots: Iterable[Shot]) -> None:
    """Let Chromium take pictures of the HTML report."""
    from playwright.sync_api import sync_playwright

    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if program is None:
        raise SystemExit("no Chromium: install it, or leave out --browser")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        for shot in shots:
            file = Path(folder) / "report.html"
            file.write_text(report.load("html").render(nccl_inspect.read(shot.log), Style()), encoding="utf-8")
            page = browser.new_page(
                viewport={"width": shot.width, "height": shot.height},
                color_scheme="dark" if shot.dark else "light",
                reduced_motion="reduce",
            )
            page.goto(file.as_uri())
            if shot.part:
                page.evaluate(f"document.getElementById('{shot.part}').scrollIntoView()")
            page.screenshot(path=FOLDER / f"{shot.name}.png")
            page.close()
            click.echo(f"docs/pictures/{shot.name}.png: written")
        if TRY.exists():
            take_the_page(browser)
        else:
            click.echo("docs/pictures/try.png: left as it is; 'make try' builds the page")
        browser.close()


def take_the_page(browser: Browser) -> None:
    """Take a picture of the page that judges logs, with the report of its sample."""
    page = browser.new_page(viewport={"width": 1180, "height": 860}, color_scheme="light", reduced_motion="reduce")
    page.goto(TRY.as_uri())
    page.click("#sample", timeout=_LOADING)
    page.wait_for_selector("#result:not([hidden]) #verdict", timeout=_LOADING)
    page.wait_for_timeout(500)  # the report within it draws itself
    page.screenshot(path=FOLDER / "try.png")
    page.close()
    click.echo("docs/pictures/try.png: written")


if __name__ == "__main__":
    main()
