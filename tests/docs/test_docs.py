"""The documentation says what is so: generated parts are fresh, snippets run, links lead somewhere."""

import os
import re
import subprocess
import sys
from pathlib import Path

import notebook
import pytest
from repository import ROOT

PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\((?!https?:)([^)#\s]+)")
ENV = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}


def blocks(language: str, *pages: Path) -> dict[str, str]:
    """The code blocks of some pages in a language, by page and number."""
    return {
        f"{page.stem}-{number}": text
        for page in pages
        for number, (name, text) in enumerate(FENCE.findall(page.read_text(encoding="utf-8")), 1)
        if name == language
    }


README = list(blocks("sh", ROOT / "README.md").values())
COMMANDS = [line for text in README for line in text.splitlines() if re.search(r"(^|\| )nccl-inspect ", line)]
NOTEBOOKS = [page for page in PAGES if notebook.is_notebook(page.read_text(encoding="utf-8"))]
SINGLE = [page for page in PAGES if page not in NOTEBOOKS]
SNIPPETS = [pytest.param(text, id=name) for name, text in blocks("python", *SINGLE).items()]


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A folder in which the samples lie where the pages say, and where what a snippet writes does no harm."""
    (tmp_path / "sample_logs").symlink_to(ROOT / "sample_logs")
    return tmp_path


@pytest.mark.slow
def test_generated_parts_are_up_to_date() -> None:
    done = subprocess.run([sys.executable, ROOT / "docs" / "generate.py", "--check"], capture_output=True, text=True)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"


@pytest.mark.slow
def test_pictures_of_the_terminal_are_up_to_date() -> None:
    done = subprocess.run([sys.executable, ROOT / "docs" / "pictures.py", "--check"], capture_output=True, text=True)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_is_merged(page: Path) -> None:
    assert not re.search(r"^(<{7}|>{7}) ", page.read_text(encoding="utf-8"), re.MULTILINE)


@pytest.mark.parametrize("code", SNIPPETS)
def test_a_python_snippet_runs(code: str, clone: Path) -> None:
    done = subprocess.run([sys.executable, "-c", code], cwd=clone, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", NOTEBOOKS, ids=lambda page: page.stem)
def test_a_notebook_runs_and_prints_what_it_shows(page: Path) -> None:
    pytest.importorskip("duckdb")
    text = page.read_text(encoding="utf-8")
    assert notebook.run(text) == text


@pytest.mark.parametrize("line", COMMANDS)
def test_a_command_of_the_readme_runs(line: str, clone: Path) -> None:
    done = subprocess.run(["bash", "-o", "pipefail", "-c", line], cwd=clone, env=ENV, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_readme_begins_with_demo_and_test() -> None:
    assert [text.strip() for text in README[:2]] == ["make demo", "make test"]


@pytest.mark.parametrize("page", [pytest.param(page, id=str(page.relative_to(ROOT))) for page in PAGES])
def test_links_lead_somewhere(page: Path) -> None:
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    missing = [link for link in LINK.findall(text) if not (page.parent / link).exists()]
    assert not missing
