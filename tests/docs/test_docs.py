"""The documentation says what is so: snippets run, links lead somewhere, figures have a source, variables exist."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import notebook
import pytest
from repository import ROOT, TESTS
from rule_pages import findings

from nccl_inspect.model.versions import order

PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
RULES = ROOT / "nccl_inspect" / "rules"
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\((?!https?:)([^)#\s]+)")


def blocks(language: str, page: Path) -> list[str]:
    return [text for name, text in FENCE.findall(page.read_text(encoding="utf-8")) if name == language]


# --- what runs

README = blocks("sh", ROOT / "README.md")
NOTEBOOKS = [page for page in PAGES if notebook.is_notebook(page.read_text(encoding="utf-8"))]


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """Return a folder in which the samples lie where the pages say, and where what a snippet writes does no harm."""
    (tmp_path / "sample_logs").symlink_to(ROOT / "sample_logs")
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize("script", ["generate.py", "pictures.py", "shared_files.py"])
def test_generated_parts_are_up_to_date(script: str) -> None:
    done = subprocess.run([sys.executable, ROOT / "docs" / script, "--check"], capture_output=True, text=True)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}; make docs writes them anew"


@pytest.mark.slow
def test_snippets_and_commands_run(clone: Path) -> None:
    single = [page for page in PAGES if page not in NOTEBOOKS]
    commands = [[sys.executable, "-c", code] for page in single for code in blocks("python", page)]
    lines = [line for text in README for line in text.splitlines() if re.search(r"(^|\| )nccl-inspect ", line)]
    commands += [["bash", "-o", "pipefail", "-c", line] for line in lines]
    assert len(commands) > 10
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    wrong = []
    for command in commands:
        done = subprocess.run(command, cwd=clone, env=env, capture_output=True, text=True)
        wrong += [f"{command[-1]}\n{done.stderr}"] if done.returncode else []
    assert not wrong, "\n".join(wrong)


@pytest.mark.slow
@pytest.mark.parametrize("page", NOTEBOOKS, ids=lambda page: page.stem)
def test_a_notebook_runs_and_prints_what_it_shows(page: Path) -> None:
    pytest.importorskip("duckdb")
    text = page.read_text(encoding="utf-8")
    assert notebook.run(text) == text


def test_pages_are_merged_and_links_lead_somewhere() -> None:
    wrong = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        wrong += [f"{page}: {mark[0]}" for mark in re.finditer(r"^(<{7}|>{7}) .*", text, re.MULTILINE)]
        links = LINK.findall(FENCE.sub("", text))
        wrong += [f"{page}: no {link}" for link in links if not (page.parent / link).exists()]
    assert not wrong, "\n".join(wrong)
    assert [text.strip() for text in README[:2]] == ["make demo", "make test"]


# --- figures

FIGURE = re.compile(
    r"\d (?:[GMT]i?B|[GMT]b(?:it)?)/s|\d:\d\d min|\d minutes (?:over|against)|\d s (?:over|against)"
    r"|\d times (?:less|longer|more|faster|slower)|\d MB\b"
)
"""A rate, a factor, or what was measured."""
WAIT = re.compile(r"\d (?:s|seconds|minutes|hours)\b")
"""How long a program waits; where a page says what to do, the reader waits."""
OWN = ("hang_in_init",)
"""Pages whose times are the rule's own."""
SOURCE = re.compile(r"^Source: \[[^\]]+\]\(([^)]+)\)\.$", re.MULTILINE)


def without_source(page: str, waits: bool = True) -> list[str]:
    """Return the sections that tell a figure and not where it comes from."""
    prose = re.sub(r"^```.*?^```$", "", page, flags=re.MULTILINE | re.DOTALL)
    sections = re.split(r"^## ", prose, flags=re.MULTILINE)
    states = ("What i", "Why it")  # how things are
    told = [one for one in sections if FIGURE.search(one) or (waits and one[:6] in states and WAIT.search(one))]
    return [part for part in told if not SOURCE.search(part)]


def test_a_figure_of_a_rule_has_its_source_in_the_same_section() -> None:
    wrong = []
    for page in sorted(RULES.glob("*.md")):
        text = page.read_text(encoding="utf-8")
        wrong += [f"{page}: no source: {section}" for section in without_source(text, page.stem not in OWN)]
        local = [target for target in SOURCE.findall(text) if not target.startswith("https://")]
        wrong += [f"{page}: no {target}" for target in local if not (RULES / target).is_file()]
    for module in sorted(RULES.glob("*.py")):
        nodes = ast.walk(ast.parse(module.read_text(encoding="utf-8")))
        texts = [str(node.value) for node in nodes if isinstance(node, ast.Constant)]
        wrong += [f"{module}: a rate without a source: {text}" for text in texts if re.search(r"\d GB/s", text)]
    assert not wrong, "\n".join(wrong)


@pytest.mark.slow
def test_an_impact_is_a_sentence_whose_figures_have_references_that_can_be_opened() -> None:
    told = [finding for finding in findings() if FIGURE.search(finding.impact)]
    assert len(told) > 20
    assert not [finding.impact for finding in told if not finding.references]
    links = {reference.link for finding in told for reference in finding.references}
    assert not [link for link in links if not link.startswith("https://") and not (ROOT / link).exists()]
    assert not [finding.impact for finding in findings() if re.search(r"https?:|\.(?:com|md)\b", finding.impact)]


def test_what_others_measured_can_be_opened() -> None:
    page = (ROOT / "docs" / "explanation" / "measurements.md").read_text(encoding="utf-8")
    rows = [row for row in re.findall(r"^\|.*\|$", page, re.MULTILINE) if re.search(r"\d", row)]
    others, own = page.split("## Measured here")
    assert not [row for row in rows if row in others and "](http" not in row and "](#measured-here)" not in row]
    assert len(re.findall(r"`(sample_logs/[^`]+)`", own)) > 4
    assert not [path for path in re.findall(r"`(sample_logs/[^`]+)`", page) if not (ROOT / path).exists()]
    assert "from memory" not in page


NAMING = ("nccl_inspect/rules/*.md", "nccl_inspect/rules/*.py", "docs/explanation/*.md", "docs/howto/*.md")
LOG = re.compile(r"^```(?:log|console|examples).*?^```$", re.MULTILINE | re.DOTALL)
NAME = re.compile(r"\b(?:TORCH_NCCL|OFI_NCCL|NCCL|FI_EFA)_[A-Z0-9_]*[A-Z0-9]\b(?![_*]|\|)")
SINCE = re.compile(r"\b(NCCL_[A-Z0-9_]+)=[^#\n]*# *(\d+\.\d+(?:\.\d+)?) and later")
NO_VARIABLES = {"NCCL_IB", "NCCL_P2P", "NCCL_SHM", "NCCL_PTR_CUDA", "NCCL_PTR_DMABUF"}
"""Pages grep for these, and they are constants of NCCL's source."""


def test_variables_that_rules_and_pages_name_exist_in_the_releases_that_they_say() -> None:
    lines = (TESTS / "data" / "variables.tsv").read_text(encoding="utf-8").splitlines()
    rows = [line.split("\t") for line in lines if line[:1] != "#"]
    first = {name: (*fields, "", "")[1] for name, *fields in rows}
    wrong, found = [], []
    for path in (path for pattern in NAMING for path in sorted(ROOT.glob(pattern))):
        text = LOG.sub("", path.read_text(encoding="utf-8"))
        if path.suffix == ".py":  # strings are joined
            text = re.sub(r'"\s*\n\s*f?"', "", text)
        wrong += [f"{path}: no variable {name}" for name in set(NAME.findall(text)) - NO_VARIABLES - first.keys()]
        for name, release in SINCE.findall(text):
            found.append((name, release))
            if name in first and order(release) < order(first[name])[: len(order(release))]:
                wrong.append(f"{path}: {name} exists since {first[name]}")
    assert not wrong, "\n".join(wrong)
    assert ("NCCL_SOCKET_RETRY_CNT", "2.24") in found
    assert len(found) > 5
