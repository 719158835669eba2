"""One HTML file for people: verdict, findings, a matrix of paths, rings and trees, a time line, the environment.

Nothing in it asks for anything elsewhere, and a policy in the page (CSP) forbids it: only the one script and the one
style that were put into it may run. Text of the log reaches the page escaped, or as data that scripts show as text.
"""

from __future__ import annotations

import base64
import hashlib
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nccl_inspect._version import __version__
from nccl_inspect.model.job import Job
from nccl_inspect.picture.looks import LOOKS
from nccl_inspect.report import Style, jobs
from nccl_inspect.report.digest import facts, meaning, reason, short_names, steps_under, where, who
from nccl_inspect.report.page import data, sections
from nccl_inspect.report.tables import KIND_HEAD, by_kind, gdr_word
from nccl_inspect.rules import capture
from nccl_inspect.rules.facts import STATES, count, ranges
from nccl_inspect.rules.remedies import is_sentence
from nccl_inspect.text import printable

if TYPE_CHECKING:
    from jinja2 import Template

_PAGE = Path(__file__).parent / "page"
_URL = re.compile(r"(https?://[^\s()<>\"',;]+[^\s()<>\"',;.:])")


def render(job: Job, style: Style) -> str:
    """The page; it needs no other file and no network."""
    from markupsafe import Markup

    names = short_names(job)
    used = {data.look_of_path(path) for path in job.paths}
    css = (_PAGE / "page.css").read_text(encoding="utf-8")
    script = "\n".join(file.read_text(encoding="utf-8") for file in sorted(_PAGE.glob("*.js")))
    context: dict[str, Any] = {
        "job": job,
        "version": __version__,
        "reason": reason(job),
        "jobs": jobs.rows(job.jobs),
        "jobs_head": jobs.HEAD,
        "jobs_headline": jobs.headline(job) if job.jobs else "",
        "where": where(job),
        "culprits": data.culprits(job),
        "facts": [(label, text) for label, text in facts(job) if label not in ("log", "environment")],
        "names": names,
        "leads": sections.leads(job),
        "numbers": sections.by_severity(job.findings),
        "kind_head": KIND_HEAD,
        "kinds": by_kind(job.paths),
        "looks": [(look, data.LETTERS[look.key]) for look in LOOKS if look.key in used],
        "gdr": {gdr_word(path.gdr) for path in job.paths},
        "verdicts": {path.verdict for path in job.paths},
        "environment": sections.environment(job, names),
        "versions": sections.versions(job, names),
        "nics": sections.nics(job),
        "capture": capture.command(job),
        "timeline": sections.timeline(job, names),
        "heads": sections.HEADS,
        "phases": sections.PHASES,
        "width": sections.WIDTH,
        "soundness": sections.soundness,
        # Own files and JSON in which nothing can end the script: what comes from the log is escaped in it.
        "css": Markup(css),  # noqa: S704
        "script": Markup(script),  # noqa: S704
        "data": Markup(data.document(job, names)),  # noqa: S704
        "css_hash": _hash(f"\n{css}\n"),
        "script_hash": _hash(f"\n{script}\n"),
    }
    return _template().render(context) + "\n"


def _hash(text: str) -> str:
    """How a policy names what may run."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


@cache
def _template() -> Template:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(_PAGE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_shown,
    )
    environment.filters.update(count=count, ranges=ranges, linked=_linked)
    environment.globals.update(meaning=meaning, who=who, steps_under=steps_under, states=STATES)
    environment.tests.update(sentence=is_sentence)
    return environment.get_template("page.html.j2")


def _shown(value: Any) -> Any:
    """What stands in the page: text without control characters, and what is marked as safe as it is."""
    return printable(value) if isinstance(value, str) and not hasattr(value, "__html__") else value


def _linked(text: str) -> Any:
    """Text whose web addresses are links; only for texts of rules: a log must not lead readers anywhere."""
    from markupsafe import Markup, escape

    parts = _URL.split(printable(text))
    links = [f'<a href="{escape(part)}" rel="noreferrer">{escape(part)}</a>' for part in parts[1::2]]
    texts = [str(escape(part)) for part in parts[::2]]
    mixed = [part for pair in zip(texts, [*links, ""], strict=True) for part in pair]
    return Markup("".join(mixed))  # noqa: S704
