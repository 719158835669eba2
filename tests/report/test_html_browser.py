"""The HTML report in a real browser (headless Chromium): what a reader does with it, and what it must not do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import large_job
import pytest
import sample_data
from test_html import FALLBACK, hostile, html

import nccl_inspect
from nccl_inspect.model.job import Job

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.slow


class Reader:
    """A reader with a page open, who notes what goes wrong in it."""

    def __init__(self, browser: Browser, folder: Path) -> None:
        self._browser = browser
        self._folder = folder
        self.troubles: list[str] = []

    def open(self, job: Job, **settings: Any) -> Page:
        file = self._folder / "report.html"
        file.write_text(html(job), encoding="utf-8")
        page = self._browser.new_page(viewport={"width": 1400, "height": 900}, **settings)
        page.on("console", lambda message: self.troubles.append(f"console: {message.text}"))
        page.on("pageerror", lambda error: self.troubles.append(f"error: {error}"))
        page.on("dialog", lambda dialog: self.troubles.append(f"dialog: {dialog.message}"))
        page.on("request", lambda request: self._note(request.url))
        page.goto(file.as_uri())
        return page

    def _note(self, url: str) -> None:
        if not url.startswith((self._folder.as_uri(), "data:")):
            self.troubles.append(f"request: {url}")


@pytest.fixture
def reader(browser: Browser, tmp_path: Path) -> Iterator[Reader]:
    reader = Reader(browser, tmp_path)
    yield reader
    assert not reader.troubles


def test_samples_open_without_errors_and_requests(reader: Reader) -> None:
    for name in sample_data.names():
        job = sample_data.job(name)
        page = reader.open(job)
        assert job.verdict.upper() in page.inner_text("h1")
        if job.paths:
            pairs = {(path.src, path.dst) for path in job.paths}
            assert page.locator("#matrix td[data-key]").count() == len(pairs), name
        page.close()


def test_each_path_has_its_line(reader: Reader) -> None:
    for name in ("socket-2node-tp4-dp2", "v2.30.7-subsys-all", FALLBACK):
        job = sample_data.job(name)
        page = reader.open(job)
        lines = [path.evidence[0] for path in job.paths]
        assert page.evaluate("paths.map((path) => [path.src, path.dst, path.kind.comms || []])") == [
            [path.src, path.dst, path.communicators] for path in job.paths
        ]
        assert page.evaluate("paths.map((path) => lineOf(path).text)") == [line.text for line in lines]
        numbers = page.evaluate("paths.map((path) => Number(lineOf(path).place.split(':').pop()))")
        assert numbers == [line.line for line in lines]


def test_the_first_thing_told_is_the_worst_path(reader: Reader) -> None:
    page = reader.open(sample_data.job(FALLBACK))
    told = page.inner_text("#detail")
    assert "fallback" in told
    assert "NET/Socket" in told
    assert "via NET/Socket/0" in told


def test_pointer_and_keyboard_show_a_path_with_its_line(reader: Reader) -> None:
    page = reader.open(sample_data.job(FALLBACK))
    cells = page.locator("#matrix td[data-key]")
    cells.nth(0).hover()
    assert "0 → 1: ok" in page.inner_text("#detail")
    page.locator("#words").focus()
    for _ in range(20):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.dataset.key !== undefined"):
            break
    assert "1 → 2: fallback" in page.inner_text("#detail")
    page.keyboard.press("ArrowUp")
    assert "0 → 1: ok" in page.inner_text("#detail")
    assert "via P2P/CUMEM" in page.inner_text("#detail .evidence")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    assert page.evaluate("document.activeElement.getAttribute('aria-label')").startswith("rank 2 to rank 3")
    assert page.locator('#matrix td[tabindex="0"]').count() == 1


def test_the_filter_dims_and_lists(reader: Reader) -> None:
    page = reader.open(sample_data.job("socket-2node-tp4-dp2"))
    page.locator("#list-box summary").click()
    page.wait_for_selector("#list tbody tr")  # the list is filled when the browser says that the box is open
    everything = page.locator("#list tbody tr").count()
    page.select_option("#transport", "NET")
    some = page.locator("#list tbody tr").count()
    assert 0 < some < everything
    assert page.inner_text("#found") == f"{some} of {everything} paths"
    assert page.locator("#matrix td.dim").count() == everything - some
    page.fill("#words", "1->4")
    assert page.locator("#list tbody tr").count() == 1
    page.fill("#words", "1 4 nothing-like-this")
    assert page.locator("#list tbody tr").count() == 0
    page.click("#filter button[type=reset]")
    page.wait_for_selector("#matrix td.dim", state="detached")
    assert page.locator("#list tbody tr").count() == everything


def test_rings_and_trees_are_drawn_for_each_channel(reader: Reader) -> None:
    page = reader.open(sample_data.job("socket-2node-tp4-dp2"))
    assert page.locator("#drawing .node").count() == 8
    assert page.locator("#drawing path.hop").count() == 8
    assert page.inner_text("#order").startswith("0 → 3 → 2 → 1 → 4")
    page.select_option("#shape", "tree 1")
    assert page.locator("#drawing path.hop").count() == 7
    assert "NET through host memory" in page.inner_text("#strokes")
    page.select_option("#comm", "1")
    assert page.locator("#drawing .node").count() == 4


def test_hostile_text_is_shown_and_does_nothing(reader: Reader) -> None:
    page = reader.open(hostile())
    page.locator("#list-box summary").click()
    for cell in page.locator("#matrix td[data-key]").all():
        cell.hover()
        assert "<script>alert(1)</script>" in page.inner_text("#detail")
    for value in ("ring 0", "tree 0"):
        page.select_option("#shape", value)
    page.fill("#words", "<img src=x onerror=alert(3)>")
    assert page.locator("img").count() == 0
    assert page.locator("script").count() == 2


def test_the_policy_stops_what_is_put_into_the_page(browser: Browser, tmp_path: Path) -> None:
    reader = Reader(browser, tmp_path)
    page = reader.open(sample_data.job(FALLBACK))
    page.evaluate(
        "() => { const i = document.createElement('img'); i.src = 'https://example.invalid/'; document.body.append(i) }"
    )
    with pytest.raises(Exception, match="TrustedHTML"):
        page.evaluate("document.body.innerHTML = '<b>x</b>'")
    page.wait_for_timeout(200)
    assert any("Content Security Policy" in trouble for trouble in reader.troubles)


def test_what_names_of_hosts_begin_with_is_told_once(reader: Reader) -> None:
    page = reader.open(nccl_inspect.read(large_job.log(2)))
    assert "… = train-7f9c-node-" in page.inner_text("#crumbs")


def test_1024_ranks_fold_to_hosts_and_open_to_ranks(reader: Reader) -> None:
    page = reader.open(nccl_inspect.read(large_job.log(128, without_gdr=77)))
    assert "128 × 128 hosts" in page.inner_text("#crumbs")
    assert page.evaluate("performance.timing.domContentLoadedEventEnd - performance.timing.navigationStart") < 10_000
    page.locator('#matrix td[tabindex="0"]').focus()
    page.keyboard.press("Enter")
    assert "16 × 16 ranks" in page.inner_text("#crumbs")
    assert "304 → 616" in page.inner_text("#detail")
    page.locator("#crumbs button").click()
    assert "128 × 128 hosts" in page.inner_text("#crumbs")


def test_light_and_dark_follow_the_system_until_chosen(reader: Reader) -> None:
    page = reader.open(sample_data.job(FALLBACK), color_scheme="dark")
    color = "getComputedStyle(document.body).backgroundColor"
    assert page.evaluate(color) == "rgb(20, 23, 26)"
    page.click("#theme")
    assert page.evaluate(color) == "rgb(255, 255, 255)"
    page.emulate_media(media="print", color_scheme="dark")
    assert page.evaluate(color) == "rgb(255, 255, 255)"
    assert not page.locator("nav").is_visible()


CONTRAST = Path(__file__).with_name("contrast.js").read_text(encoding="utf-8")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_contrast(scheme: str, reader: Reader) -> None:
    for job in (sample_data.job(FALLBACK), nccl_inspect.read(large_job.log(2, without_gdr=1, late=3))):
        page = reader.open(job, color_scheme=scheme)
        assert page.evaluate(CONTRAST) == []


def test_controls_and_regions_have_names(reader: Reader) -> None:
    page = reader.open(sample_data.job(FALLBACK))
    nameless = page.evaluate(
        """() => [...document.querySelectorAll("input, select, button, section, nav, aside, table, svg[role=img]")]
        .filter((e) => e.checkVisibility() && !(e.labels && e.labels.length) && !e.textContent.trim()
          && !e.getAttribute("aria-label") && !e.getAttribute("aria-labelledby"))
        .map((e) => e.outerHTML.slice(0, 80))"""
    )
    assert nameless == []
    for role in ("banner", "main", "contentinfo", "complementary", "search"):
        assert page.get_by_role(role).count() == 1, role
    assert page.evaluate("document.documentElement.lang") == "en"
    levels = page.evaluate("[...document.querySelectorAll('h1,h2,h3')].map((e) => Number(e.tagName[1]))")
    assert levels[0] == 1
    assert levels.count(1) == 1


def test_a_narrow_window_does_not_scroll_sideways(reader: Reader) -> None:
    page = reader.open(sample_data.job(FALLBACK))
    page.set_viewport_size({"width": 420, "height": 900})
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
