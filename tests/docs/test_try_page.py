"""The page that judges logs in the browser: the answers of the command line, and no request to anywhere."""

from __future__ import annotations

import fcntl
import gzip
import json
import lzma
import os
import shutil
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import large_job
import pytest
import sample_data
import try_page
import zstandard
from chromium import BROWSER

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None, reason="no Chromium on this machine"),
    pytest.mark.skipif(not (shutil.which("npm") and shutil.which("node")), reason="no npm, which builds the page"),
]
SAMPLES = sample_data.FOLDER
FALLBACK = SAMPLES / "efa-provider-missing-socket-fallback" / "job.log"
FILES = [files[0] for name in sample_data.names() if len(files := sample_data.files(name)) == 1]
FOLDERS = ["debug-file-per-process", "run-loop", "torch-mesh-2node", "torch-watchdog-timeout"]
READY = "html[data-state=ready], #error:not([hidden])"
DONE = "#result:not([hidden]), #error:not([hidden])"
LONG = 120_000
OPEN_PASTE = "() => { document.getElementById('paste').open = true }"


SERVED: list[str] = []
"""What came to the server."""


class _Noted(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        SERVED.append(self.path)


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the page, built once for all processes that run tests."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    folder = shared / "try"
    with (shared / "try.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / try_page.SINGLE).exists():
            try:
                try_page.runtime()
            except subprocess.CalledProcessError:
                pytest.skip("npm cannot install the package pyodide")
            try_page.build(folder)
    return folder


@pytest.fixture(scope="session")
def address(built: Path) -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Noted, directory=str(built))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


class Visitor:
    """Somebody who has the page open; every request and every trouble is noted."""

    def __init__(self, browser: Browser, address: str) -> None:
        self.context = browser.new_context(viewport={"width": 1280, "height": 900}, accept_downloads=True)
        self.address = address
        self.requests: list[str] = []
        self.troubles: list[str] = []
        self.context.on("request", lambda request: self._note(request.url))
        self.page: Page = self.context.new_page()
        self.page.on("console", self._take)
        self.page.on("pageerror", lambda error: self.troubles.append(str(error)))
        self.page.on("dialog", lambda dialog: self.troubles.append(f"dialog: {dialog.message}"))
        self.open()

    def _take(self, message: Any) -> None:
        if not message.text.startswith("nccl-inspect: passed over: "):  # what the command says on stderr
            self.troubles.append(message.text)

    def open(self) -> None:
        self.page.goto(self.address)
        self.page.wait_for_selector(READY, timeout=LONG)

    def _note(self, url: str) -> None:
        if not url.startswith("blob:"):
            self.requests.append(url)

    def give(self, path: Path | list[Path], box: str = "#files") -> None:
        self.page.set_input_files(box, path)
        self.wait()

    def wait(self) -> None:
        self.page.wait_for_selector(DONE, timeout=LONG)

    @property
    def error(self) -> str:
        return self.page.inner_text("#error") if self.page.is_visible("#error") else ""

    def save(self, tab: str | None) -> bytes:
        """Return what a button saves: a report, or the anonymized copy."""
        if tab:
            self.page.click(f"#tab-{tab}")
        with self.page.expect_download(timeout=LONG) as download:
            self.page.click("#save" if tab else "#anonymize")
        return Path(download.value.path()).read_bytes()


@pytest.fixture(scope="module")
def visitor(browser: Browser, address: str) -> Iterator[Visitor]:
    """Yield the visitor of most tests: loading takes some seconds."""
    visitor = Visitor(browser, address)
    assert visitor.error == ""
    loaded = len(visitor.requests)
    yield visitor
    assert visitor.requests[loaded:] == []
    assert visitor.troubles == []


def command(*arguments: str, cwd: Path) -> bytes:
    env = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    call = [sys.executable, "-m", "nccl_inspect", *arguments]
    done = subprocess.run(call, cwd=cwd, env=env, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_files_and_folders_are_judged_as_the_command_line_does(visitor: Visitor, tmp_path: Path) -> None:
    wrong = []
    for path in (*FILES, *(SAMPLES / name for name in FOLDERS), *pack_log(tmp_path)):
        visitor.give(path, "#folder" if path.is_dir() else "#files")
        expected = command("summarize", path.name, "--format", "json", cwd=path.parent)
        if visitor.error or visitor.save("json") != expected:
            wrong.append(f"{path}: {visitor.error or 'another document'}")
    assert not wrong, "\n".join(wrong)
    (tmp_path / "logs").mkdir()
    for file in SAMPLES.glob("debug-file-per-process/*/*"):
        shutil.copy2(file, tmp_path / "logs")
    visitor.give(sorted((tmp_path / "logs").iterdir()))
    assert visitor.save("json") == command("summarize", "logs", "--format", "json", cwd=tmp_path), "files of one job"


def pack_log(folder: Path) -> Iterator[Path]:
    data = FALLBACK.read_bytes()
    kinds = {"gz": gzip.compress(data), "xz": lzma.compress(data), "zst": zstandard.compress(data)}
    for suffix, content in kinds.items():
        (folder / f"job.log.{suffix}").write_bytes(content)
        yield folder / f"job.log.{suffix}"


def test_report_text_and_copy_are_those_of_the_command_line(visitor: Visitor) -> None:
    visitor.give(FALLBACK)
    for tab, form in (("html", "html"), ("text", "text")):
        assert visitor.save(tab) == command("summarize", "job.log", "--format", form, cwd=FALLBACK.parent)
    assert visitor.save(None) == command("anonymize", "job.log", cwd=FALLBACK.parent)
    visitor.page.click("#tab-html")
    report = visitor.page.frame_locator("#report")
    assert "over NET/Socket instead of EFA" in report.locator("h1").inner_text()
    report.locator("#matrix td[data-key]").first.hover()
    assert "0 → 1: ok" in report.locator("#detail").inner_text()


def test_the_copy_of_a_folder_is_an_archive(visitor: Visitor, tmp_path: Path) -> None:
    visitor.give(SAMPLES / "debug-file-per-process", "#folder")
    (tmp_path / "copy.zip").write_bytes(visitor.save(None))
    command("anonymize", "debug-file-per-process", "-o", str(tmp_path / "theirs"), cwd=SAMPLES)
    theirs = {file.name: file.read_bytes() for file in (tmp_path / "theirs").rglob("*") if file.is_file()}
    with zipfile.ZipFile(tmp_path / "copy.zip") as archive:
        ours = {Path(name).name: archive.read(name) for name in archive.namelist() if not name.endswith("/")}
    assert ours == theirs


def test_text_can_be_pasted_and_dropped(visitor: Visitor) -> None:
    page = visitor.page
    page.evaluate(OPEN_PASTE)
    page.fill("#text", "vm:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM")
    page.click("#judge-text")
    visitor.wait()
    assert json.loads(visitor.save("json"))["paths"][0]["detail"] == "P2P/CUMEM"
    drop = page.evaluate_handle(
        """text => {
          const given = new DataTransfer();
          given.items.add(new File([text], "dropped.log"));
          return given;
        }""",
        FALLBACK.read_text(),
    )
    page.dispatch_event("#drop", "drop", {"dataTransfer": drop})
    page.wait_for_selector("#verdict:has-text('dropped.log')", timeout=LONG)
    assert page.inner_text("#verdict .word") == "DEGRADED"


def test_what_cannot_be_judged_is_said(visitor: Visitor, tmp_path: Path) -> None:
    (tmp_path / "other.log").write_text("hello\n" * 7)
    visitor.give(tmp_path / "other.log")
    assert "other.log: no NCCL line among 7 lines; run the job with NCCL_DEBUG=INFO" in visitor.error
    (tmp_path / "empty.log").touch()
    visitor.give(tmp_path / "empty.log")
    assert "empty.log: empty" in visitor.error
    visitor.page.evaluate(OPEN_PASTE)
    visitor.page.fill("#text", " ")
    visitor.page.click("#judge-text")
    assert "no text to judge" in visitor.error


def test_a_hostile_log_does_nothing(visitor: Visitor, tmp_path: Path) -> None:
    attack = "<script>alert(1)</script><img/src=x/onerror=alert(2)>"
    text = FALLBACK.read_text().replace("llama-3-8b-node-0-0", attack.replace("/", "&#47;"))
    text += f"vm:1:1 [0] NCCL INFO NCCL_DEBUG_FILE set by environment to {attack}\n"
    file = tmp_path / "<img src=x onerror=alert(3)>.log"
    file.write_text(text)
    visitor.give(file)
    assert visitor.error == ""
    visitor.page.wait_for_timeout(300)
    assert visitor.page.locator("img").count() == 0
    assert visitor.page.frame_locator("#report").locator("img").count() == 0
    assert visitor.page.frame_locator("#report").locator("script").count() == 2


def test_nothing_can_be_sent(browser: Browser, address: str) -> None:
    visitor = Visitor(browser, address)
    visitor.page.click("#sample")
    visitor.wait()
    loaded = len(SERVED)
    ask = "() => fetch('index.html').then(() => 'sent', () => 'refused')"
    assert visitor.page.evaluate(ask) == "refused"
    request = """address => new Promise((answer) => {
      const request = new XMLHttpRequest();
      request.onload = () => answer("sent"); request.onerror = () => answer("refused");
      request.open("GET", address); request.send();
    })"""
    assert visitor.page.workers[0].evaluate(request, address) == "refused"
    visitor.page.evaluate("() => { document.getElementById('report').srcdoc = '<script>alert(4)</script>' }")
    visitor.page.wait_for_timeout(300)
    assert SERVED[loaded:] == []
    assert len(visitor.troubles) >= 3
    assert all("Content Security Policy" in trouble for trouble in visitor.troubles), visitor.troubles


def test_it_asks_its_own_server_only_and_then_works_without_it(browser: Browser, address: str) -> None:
    visitor = Visitor(browser, address)
    assert visitor.requests
    assert [url for url in visitor.requests if not url.startswith(address)] == []
    visitor.context.set_offline(True)
    visitor.page.reload()
    visitor.page.wait_for_selector(READY, timeout=LONG)
    visitor.give(FALLBACK)
    assert visitor.error == ""
    assert visitor.page.inner_text("#verdict .word") == "DEGRADED"


def test_one_file_works_without_a_server(browser: Browser, built: Path) -> None:
    visitor = Visitor(browser, (built / try_page.SINGLE).as_uri())
    visitor.give(FALLBACK)
    assert visitor.error == ""
    assert visitor.save("json") == command("summarize", "job.log", "--format", "json", cwd=FALLBACK.parent)
    assert visitor.requests == [visitor.address]
    assert visitor.troubles == []


def test_the_page_of_the_site_says_that_it_needs_a_server(browser: Browser, built: Path) -> None:
    visitor = Visitor(browser, (built / "index.html").as_uri())
    assert "Open nccl-inspect-try.html" in visitor.error
    assert visitor.page.is_disabled("#sample")


def test_what_is_too_large_is_left_to_the_command(visitor: Visitor, tmp_path: Path) -> None:
    large = tmp_path / "large.log"
    with large.open("wb") as file:
        file.truncate(201 << 20)
    visitor.give(large)
    assert "large.log is 201.0 MB; this page reads up to 200 MB" in visitor.error
    assert "grep -a " in visitor.error
    assert "pip install" not in visitor.error
    packed = tmp_path / "packed.log.gz"
    packed.write_bytes(gzip.compress(FALLBACK.read_bytes() * 10_000))
    visitor.give(packed)
    assert "unpacked, this is more than the 200 MB" in visitor.error


def test_fifty_megabytes_are_read_and_can_be_stopped(visitor: Visitor, tmp_path: Path) -> None:
    text = large_job.log(128)
    file = tmp_path / "job.log"
    file.write_bytes(text * ((49 << 20) // len(text)) if len(text) < 49 << 20 else text)
    page = visitor.page
    page.set_input_files("#files", file)
    page.wait_for_selector("#status:has-text('%')", timeout=LONG)
    page.click("#cancel")
    page.wait_for_selector("#status:has-text('Ready')", timeout=LONG)
    assert not page.is_visible("#result")
    visitor.give(file)
    assert visitor.error == ""
    assert page.inner_text("#verdict .word") in ("OK", "DEGRADED", "FAILED", "UNKNOWN")


def test_a_phone_shows_it_without_scrolling_sideways(browser: Browser, address: str) -> None:
    visitor = Visitor(browser, address)
    visitor.page.set_viewport_size({"width": 360, "height": 740})
    visitor.page.click("#sample")
    visitor.wait()
    for tab in ("html", "text", "json"):
        visitor.page.click(f"#tab-{tab}")
        assert visitor.page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), tab
