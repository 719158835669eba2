"""Variables that rules and pages name exist, and not only in a later release than they say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from repository import ROOT, TESTS

from nccl_inspect.model.versions import order

PAGES = [
    path
    for pattern in ("nccl_inspect/rules/*.md", "nccl_inspect/rules/*.py", "docs/explanation/*.md", "docs/howto/*.md")
    for path in sorted(ROOT.glob(pattern))
]
_LINES = (TESTS / "data" / "variables.tsv").read_text(encoding="utf-8").splitlines()
KNOWN = {fields[0]: (*fields[1:], "", "")[:3] for line in _LINES if line[:1] != "#" for fields in [line.split("\t")]}
"""By name: whose it is, and NCCL's first and last release with it."""
_LOG = re.compile(r"^```(?:log|console).*?^```$", re.MULTILINE | re.DOTALL)
_NAME = re.compile(r"\b(?:TORCH_NCCL|OFI_NCCL|NCCL|FI_EFA)_[A-Z0-9_]*[A-Z0-9]\b(?![_*]|\|)")
_SINCE = re.compile(r"\b(NCCL_[A-Z0-9_]+)=[^#\n]*# *(\d+\.\d+(?:\.\d+)?) and later")
_NO_VARIABLES = {
    *("NCCL_IB", "NCCL_P2P", "NCCL_SHM", "NCCL_PTR_CUDA", "NCCL_PTR_DMABUF"),
    *("NCCL_HEAD", "NCCL_LINE", "NCCL_EVENT_CHANNEL_CONNECT", "NCCL_CHANNEL_P2P"),
}
"""What pages grep for, constants of NCCL's source, and our own names of Grok patterns."""


def text_of(path: Path) -> str:
    """A page without its logs, and source code with its strings joined."""
    text = _LOG.sub("", path.read_text(encoding="utf-8"))
    return re.sub(r'"\s*\n\s*f?"', "", text) if path.suffix == ".py" else text


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_variables_exist(path: Path) -> None:
    assert set(_NAME.findall(text_of(path))) - _NO_VARIABLES <= KNOWN.keys()


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_a_variable_is_not_proposed_for_releases_without_it(path: Path) -> None:
    for name, release in _SINCE.findall(text_of(path)):
        first = KNOWN[name][1]
        assert order(release) >= order(first)[: len(order(release))], f"{name} exists since {first}"


def test_releases_are_found_in_steps() -> None:
    found = [match for path in PAGES for match in _SINCE.findall(text_of(path))]
    assert ("NCCL_SOCKET_RETRY_CNT", "2.24") in found
    assert len(found) > 5
