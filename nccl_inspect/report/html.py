"""One HTML file: verdict, findings, a matrix of paths, rings and trees, a timeline, the environment.

The page loads nothing from elsewhere, and its content security policy (CSP) forbids it: only the embedded script and
style may run. Text of the log is escaped, or is data that scripts show as text.
"""

from __future__ import annotations

import base64
import hashlib
import re
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nccl_inspect._version import __version__
from nccl_inspect.answers import machines, ranks
from nccl_inspect.judging import capture
from nccl_inspect.judging.remedies import is_sentence
from nccl_inspect.model.job import Job
from nccl_inspect.report import Style, head, jobs, story
from nccl_inspect.report.digest import facts, has_story, meaning, reason, short_names, steps_under, verdict_word, who
from nccl_inspect.report.folding import is_brief
from nccl_inspect.report.head import labelled
from nccl_inspect.report.page import data, sections
from nccl_inspect.report.picture.looks import LOOKS
from nccl_inspect.report.tables import KIND_HEAD, by_kind, gdr_word
from nccl_inspect.util.text import printable
from nccl_inspect.util.wording import STATES, count, ranges

if TYPE_CHECKING:
    from jinja2 import Environment, Template

SUFFIXES = ("htm",)
_PAGE = Path(__file__).parent / "page"
_ANSWERS = {"hosts": machines.HOSTS, "nics": machines.NICS, "env": ranks.ENV, "ranks": ranks.RANKS}
"""The tables that commands also print."""
_URL = re.compile(r"(https?://[^\s()<>\"',;]+[^\s()<>\"',;.:])")


def render(job: Job, style: Style) -> str:
    """The page; it needs no other file and no network."""
    from markupsafe import Markup

    names = short_names(job)
    used = set(map(data.look_of_kind, job.paths.kinds))
    leads = sections.leads(job)
    script = "\n".join(file.read_text(encoding="utf-8") for file in sorted(_PAGE.glob("*.js")))
    context: dict[str, Any] = {
        "job": job,
        "version": __version__,
        "word": verdict_word(job),
        "reason": reason(job),
        "head": labelled(head.of(job, is_now=True)),
        "jobs": jobs.rows(job.jobs),
        "jobs_head": jobs.HEAD,
        "jobs_headline": jobs.headline(job) if job.jobs else "",
        "story": story.lines(job) if has_story(job) else [],
        "story_rows": story.rows(job) if has_story(job) else [],
        "culprits": data.culprits(job),
        "facts": [(label, text) for label, text in facts(job) if label not in ("log", "environment")],
        "names": names,
        "leads": leads,
        "is_brief": partial(is_brief, job=job, verbose=style.verbose),
        "numbers": sections.by_severity(lead.finding for lead in leads),
        "nested": sum(len(lead.under) for lead in leads),
        "kind_head": KIND_HEAD,
        "kinds": by_kind(job.paths),
        "looks": [(look, data.LETTERS[look.key]) for look in LOOKS if look.key in used],
        "gdr": {gdr_word(kind.gdr) for kind in job.paths.kinds},
        "verdicts": {kind.verdict for kind in job.paths.kinds},
        "answers": {name: sections.answer(asked, job) for name, asked in _ANSWERS.items()},
        "versions": sections.versions(job, names),
        "capture": capture.command(job),
        "plots": sections.plots(job),
        "timeline": sections.timeline(job, names),
        "heads": sections.HEADS,
        "phases": sections.PHASES,
        "width": sections.WIDTH,
        "soundness": sections.soundness,
        # Own files, and JSON with log text escaped, so that it cannot end the script.
        "script": Markup(script),  # noqa: S704
        "data": Markup(data.document(job, names)),  # noqa: S704
        **look(job.verdict),
        "script_hash": _hash(f"\n{script}\n"),
    }
    return _template().render(context) + "\n"


def look(verdict: str) -> dict[str, Any]:
    """The looks that every page gets."""
    from markupsafe import Markup

    css = (_PAGE / "page.css").read_text(encoding="utf-8")
    return {"css": Markup(css), "css_hash": _hash(f"\n{css}\n"), "verdict": verdict}  # noqa: S704 - our own file


def _hash(text: str) -> str:
    """Return how a policy names what may run."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _template() -> Template:
    made = environment(_PAGE)
    made.globals.update(meaning=meaning, who=who, steps_under=steps_under, states=STATES)
    return made.get_template("page.html.j2")


@cache
def environment(folder: Path) -> Environment:
    """Return what templates in a folder are rendered with: text is escaped, and shown without control characters."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    made = Environment(
        loader=FileSystemLoader(folder),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_shown,
    )
    made.filters.update(count=count, ranges=ranges, linked=_linked)
    made.tests.update(sentence=is_sentence)
    return made


def _shown(value: Any) -> Any:
    """A value for the page: text without control characters; what is marked as safe stays as it is."""
    return printable(value) if isinstance(value, str) and not hasattr(value, "__html__") else value


def _linked(text: str) -> Any:
    """Text whose web addresses are links; only for texts of rules: a log must not lead readers anywhere."""
    from markupsafe import Markup, escape

    parts = _URL.split(printable(text))
    links = [f'<a href="{escape(part)}" rel="noreferrer">{escape(part)}</a>' for part in parts[1::2]]
    texts = [str(escape(part)) for part in parts[::2]]
    mixed = [part for pair in zip(texts, [*links, ""], strict=True) for part in pair]
    return Markup("".join(mixed))  # noqa: S704
