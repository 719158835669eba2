"""What mkdocs does with the pages besides showing them; named in ``mkdocs.yml``.

Pages are written for whoever reads them in the repository: they link files outside of ``docs``, and examples of rules
say behind ``log`` what they prove. Here the files that lie elsewhere become pages, and links lead to them; menus that a
person would have to keep by hand come from the folders.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, InclusionLevel

from nccl_inspect.judging import engine
from nccl_inspect.report.words import EXAMPLE, describe_proof

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
TRY = ROOT / "build" / "try"
"""The page that judges logs in the browser, where ``make try`` built it."""
HOME = '<p><a href="../index.html">Documentation</a></p>'
LEARN = "## Learn it"
TRIED = "**[Judge a log in this browser](try/index.html)**: nothing is installed, and nothing is uploaded."
"""What the start page says before that heading, where the site has the page."""
PROJECT = {
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changes.md",
    "SECURITY.md": "security.md",
    "LICENSE": "licence.txt",
    "tools/README.md": "tools.md",
    "sample_logs/INDEX.md": "sample-logs.md",
}
"""Files outside of ``docs``, and where they are in the site."""
FENCE = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"(\[[^\]]*\])\((?!\w+:)([^)#\s]+)(#[^)\s]*)?\)")
MESSAGES = ("log-format/", "rules/")
NOTE = re.compile(r"\A<!--.*?-->\s*")
RULES = {
    ROOT / "nccl_inspect" / "rules" / f"{entry.rule.name.replace('-', '_')}.md": entry.rule
    for entry in engine.list_rules()
}
"""The rules, by their pages."""
ROW = re.compile(r"^\|.*$", re.MULTILINE)
CODE = re.compile(r"`[^`]*`")
FIRST = re.compile(r"^# (.+)$", re.MULTILINE)
PLAIN: dict[str, str] = {}
"""The pages as Markdown, for programs that read the site: their links lead to each other."""


def list_files() -> dict[str, str]:
    """Return files of the repository that are pages or data of the site, by path, and where they are there."""
    rules = {path.relative_to(ROOT).as_posix(): f"rules/{path.name}" for path in rule_pages().values()}
    schemas = {
        path.relative_to(ROOT).as_posix(): f"schema/{path.name}"
        for path in (ROOT / "nccl_inspect" / "schema").glob("*.json")
    }
    return {**PROJECT, **rules, **schemas}


def rule_pages() -> dict[str, Path]:
    """Return the page of each rule that has one, by name."""
    return {rule.name: page for page, rule in RULES.items() if page.exists()}


# --- what mkdocs calls --------------------------------------------------------------------------------------------


def on_config(config: Any) -> Any:
    """Put the long menus where the navigation has ``FOLDER/*``."""
    config.nav = list(_menu(config.nav))
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that lie outside of ``docs``."""
    for path, place in list_files().items():
        files.append(File.generated(config, place, abs_src_path=str(ROOT / path)))
    for file in TRY.rglob("*"):
        if file.is_file():
            files.append(_try_file(file, config))
    return files


def _try_file(path: Path, config: Any) -> Any:
    place = f"try/{path.relative_to(TRY).as_posix()}"
    included: Any = {"inclusion": InclusionLevel.INCLUDED}  # what it is made from lies in that folder, and is not
    if path.name != "index.html":
        return File.generated(config, place, abs_src_path=str(path), **included)
    text = path.read_text(encoding="utf-8").replace("<!-- home -->", HOME)
    return File.generated(config, place, content=text, **included)


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Lead links to where the files are in the site."""
    if page.is_homepage:
        page.meta["hide"] = ["navigation"]
        if (TRY / "index.html").exists():
            markdown = markdown.replace(LEARN, f"{TRIED}\n\n{LEARN}", 1)
    here = Path(page.file.abs_src_path).parent
    if page.file.src_uri.startswith("rules/"):
        markdown = RULES[here / Path(page.file.src_uri).name].page
    markdown = NOTE.sub("", markdown)  # else it stands before the title, which is then not found
    parts, fences = FENCE.split(markdown), FENCE.findall(markdown)
    parts = [LINK.sub(lambda found: _link(found, here, page.file.src_uri), part) for part in parts]
    parts = [ROW.sub(lambda row: CODE.sub(_mark_code, row[0]), part) for part in parts]
    fences = [EXAMPLE.sub(lambda found: f'```text title="{describe_proof(found)}"', fence) for fence in fences]
    PLAIN[page.file.src_uri] = "".join(text for pair in zip(parts, [*fences, ""], strict=True) for text in pair)
    return PLAIN[page.file.src_uri]


def on_post_build(config: Any) -> None:
    """Write each page as Markdown beside it, and ``llms.txt``, which lists these (https://llmstxt.org)."""
    site = Path(config.site_dir)
    for name, text in PLAIN.items():
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_text(text, encoding="utf-8")
    (site / "llms.txt").write_text("\n".join(_list_pages(config)), encoding="utf-8")


def on_page_content(html: str, page: Any, config: Any, files: Any) -> str:
    """Mark the pages whose code is messages: these may be wrapped, what a terminal shows may not."""
    if page.file.src_uri.startswith(MESSAGES):
        return f'<div class="messages">{html}</div>'
    return html


# --- how ----------------------------------------------------------------------------------------------------------


def _list_pages(config: Any) -> Iterator[str]:
    yield f"# {config.site_name}\n\n> {config.site_description}\n"
    folders = {"": "Start", "howto": "How to", "explanation": "Explanation", "reference": "Reference"}
    folders |= {"rules": "Optional", "log-format": "Optional"}  # what a reader with little room leaves out
    for heading in dict.fromkeys(folders.values()):
        yield f"## {heading}\n"
        for name in sorted(name for name in PLAIN if folders.get(name.rpartition("/")[0].partition("/")[0]) == heading):
            title = FIRST.search(PLAIN[name])
            paragraphs = (" ".join(text.split()) for text in PLAIN[name].split("\n\n") if text[:1].isalpha())
            about = re.split(r"(?<=[.:])\s", next(paragraphs, ""))[0].rstrip(":")
            words = f": {about}" if about and heading != "Optional" else ""
            yield f"- [{title[1] if title else name}]({name}){words}"
        yield ""


def _menu(entries: list[Any]) -> Iterator[Any]:
    for entry in entries:
        match entry:
            case "log-format/*":
                yield from _messages()
            case "rules/*":
                yield from _rules()
            case dict():
                yield {title: list(_menu(part)) if isinstance(part, list) else part for title, part in entry.items()}
            case _:
                yield entry


def _messages() -> Iterator[Any]:
    folder = DOCS / "log-format"
    dialects = [path for path in folder.iterdir() if path.is_dir()]
    yield "log-format/index.md"
    for dialect in sorted(dialects, key=lambda path: (path.name != "nccl", path.name)):
        pages = sorted(dialect.glob("*.md"))
        yield {dialect.name: [{page.stem: page.relative_to(DOCS).as_posix()} for page in pages]}


def _rules() -> Iterator[Any]:
    pages = rule_pages()
    rules = [entry.rule for entry in engine.list_rules() if entry.rule.name in pages]
    for category, members in groupby(rules, key=lambda rule: rule.category):
        yield {category: [{rule.name: f"rules/{pages[rule.name].name}"} for rule in members]}


def _link(found: re.Match[str], here: Path, page: str) -> str:
    words, target, anchor = found[1], found[2], found[3] or ""
    real = Path(os.path.normpath(here / target))
    if not real.is_relative_to(ROOT):
        return found[0]
    place = _site_path(real)
    if place is None:  # nothing that the site shows
        return words[1:-1]
    return f"{words}({posixpath.relpath(place, posixpath.dirname(page) or '.')}{anchor})"


def _mark_code(found: re.Match[str]) -> str:
    """Return code with bars that end no cell: on GitHub they need a backslash, here it would be seen."""
    return found[0].replace("\\|", "|")


def _site_path(path: Path) -> str | None:
    if path.is_relative_to(DOCS):
        return path.relative_to(DOCS).as_posix()
    return list_files().get(path.relative_to(ROOT).as_posix())
