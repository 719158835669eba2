"""The documentation as a site: it builds without a warning, holds all pages, and asks no other host for anything."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from chromium import BROWSER, QUIET
from repository import ROOT

pytest.importorskip("mkdocs", reason="the site is built where the extra 'docs' is installed")
pytest.importorskip("material", reason="the site is built where the extra 'docs' is installed")
pytestmark = pytest.mark.slow
TAGS = {
    "a", "article", "body", "button", "code", "div", "em", "footer", "form", "h1", "h2", "h3", "h4", "head",
    "header", "html", "img", "input", "label", "li", "link", "main", "meta", "nav", "ol", "p", "path", "pre",
    "script", "span", "strong", "svg", "table", "tbody", "td", "th", "thead", "title", "tr", "ul",
}  # fmt: skip
"""Of the theme and of Markdown; ``<stdin>`` in a text must not become one."""
LOADED = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src"}
"""What a browser fetches by itself."""


class _Fetched(HTMLParser):
    """The elements of a page, and the addresses that it fetches by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.addresses += [value for name, value in attrs if value and LOADED.get(tag) == name]


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    env = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="session")
def address(built: Path) -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(built))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_every_page_and_rule_is_there(built: Path) -> None:
    pages = {path.relative_to(ROOT / "docs").with_suffix(".html") for path in (ROOT / "docs").rglob("*.md")}
    rules = {Path("rules") / f"{path.stem}.html" for path in (ROOT / "nccl_inspect" / "rules").glob("*_*.md")}
    there = {path.relative_to(built) for path in built.rglob("*.html")}
    assert pages | rules | {Path("contributing.html"), Path("changes.html")} <= there


def test_no_page_fetches_anything_elsewhere(built: Path) -> None:
    for page in built.rglob("*.html"):
        parser = _Fetched()
        parser.feed(page.read_text(encoding="utf-8"))
        assert parser.addresses
        assert parser.tags <= TAGS or page.parent == built / "try", page
        assert not [address for address in parser.addresses if re.match(r"(\w+:)?//", address)], page
    for style in built.rglob("*.css"):
        assert not re.search(r"url\([\"']?(https?:)?//", style.read_text(encoding="utf-8")), style


def test_examples_of_rules_say_what_they_prove(built: Path) -> None:
    text = (built / "rules" / "gdr_disabled.html").read_text(encoding="utf-8")
    assert "raises a finding: severity error" in text
    assert "```" not in text


@pytest.mark.skipif(BROWSER is None, reason="no Chromium on this machine")
def test_a_reader_searches_and_reads_on_a_small_screen(address: str) -> None:
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=BROWSER, args=QUIET)
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        elsewhere: list[str] = []
        troubles: list[str] = []
        page.on("request", lambda request: None if request.url.startswith(address) else elsewhere.append(request.url))
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.goto(f"{address}/index.html")
        page.locator("input[name=query]").press_sequentially("GDRDMA")  # the search listens to keys
        page.wait_for_selector(".md-search-result__link")
        assert page.locator(".md-search-result__link").count() > 3
        page.set_viewport_size({"width": 400, "height": 900})
        for name in ("index", "tutorial", "explanation/choice", "reference/json", "log-format/nccl/network"):
            page.goto(f"{address}/{name}.html")
            assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), name
        browser.close()
    assert not elsewhere
    assert not troubles
