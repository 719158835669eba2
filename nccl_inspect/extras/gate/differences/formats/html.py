"""One HTML file for a ticket, in the look of the report: what explains what with its fix, then all changes by area."""

from __future__ import annotations

from pathlib import Path

from nccl_inspect._version import __version__
from nccl_inspect.extras.gate.differences import AREAS, Difference
from nccl_inspect.extras.gate.differences.formats import words
from nccl_inspect.report import Style, html

SUFFIXES = ("htm",)


def render(difference: Difference, style: Style) -> str:
    """The page; it needs no other file, no script and no network."""
    template = html.environment(Path(__file__).parent).get_template("page.html.j2")
    areas = [(area, changes) for area in AREAS if (changes := difference.of(area))]
    page = template.render(
        difference=difference, words=words, areas=areas, version=__version__, **html.page_look(difference.b.verdict)
    )
    return page + "\n"
