"""The pages of the rules: their examples, read as the tool reads them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from repository import ROOT, TESTS

import nccl_inspect
from nccl_inspect.judging import engine
from nccl_inspect.model.finding import Finding
from nccl_inspect.model.job import Job
from nccl_inspect.util.wording import read_range

RULES = {entry.rule.name: entry.rule for entry in engine.list_rules()}
EVIDENCE = ("nccl_trace", "ras", "ibstat", "nvidia-smi", "pods", "docker", "scontrol", "train.sbatch")
BLOCK = re.compile(r"^```log (?P<info>.*)\n(?P<log>(?:.*\n)*?)```$", re.MULTILINE)


@dataclass(frozen=True)
class Example:
    """A fenced log of a page with what must come out of it."""

    rule: str
    number: int
    outcome: str
    options: dict[str, str]
    log: bytes

    @property
    def id(self) -> str:
        return f"{self.rule}-{self.number}-{self.outcome}"

    @property
    def ranks(self) -> list[int]:
        parts = [read_range(part) for part in self.options.get("ranks", "").split(",") if part]
        return [rank for part in parts for rank in part or ()]

    def read(self) -> Job:
        topology = self.options.get("topology")
        return nccl_inspect.read(
            [self.log * int(self.options.get("repeat", 1)), *beside(self.options.get("beside", ""))],
            platform=self.options.get("platform"),
            topology=str(TESTS / "data" / f"{topology}.nvidia-smi-topo.txt") if topology else (),
        )


def beside(name: str) -> list[str]:
    """Return the files that stand beside an example, of a recording or made for the example."""
    folders = (ROOT / "sample_logs" / "mesh" / name, TESTS / "data" / "beside" / name)
    found = [file for folder in folders if name for file in sorted(folder.glob("*")) if file.name.startswith(EVIDENCE)]
    assert found or not name
    return list(map(str, found))


def examples(name: str) -> Iterator[Example]:
    for number, block in enumerate(BLOCK.finditer(RULES[name].page), 1):
        outcome, *options = block["info"].split()
        values = dict(option.split("=", 1) for option in options)
        yield Example(name, number, outcome, values, block["log"].encode())


@cache
def findings() -> tuple[Finding, ...]:
    """Return what the rules find in the examples of all pages."""
    return tuple(finding for name in RULES for example in examples(name) for finding in example.read().findings)
