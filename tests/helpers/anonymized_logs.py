"""Logs as ``anonymize`` writes them."""

from __future__ import annotations

from repository import TESTS

from nccl_inspect.extras.anonymize.anonymizer import Anonymizer
from nccl_inspect.extras.anonymize.text import Names
from nccl_inspect.ingest.sources import blocks


def anonymize_log(*logs: bytes, names: Names | None = None) -> tuple[Anonymizer, list[bytes]]:
    anonymizer = Anonymizer(names or Names())
    for source in blocks.find(list(logs)):
        anonymizer.learn_from(source)
    anonymizer.settle()
    return anonymizer, [b"".join(anonymizer.blocks(source)) for source in blocks.find(list(logs))]


PRIVATE = (TESTS / "extras" / "anonymize" / "private.txt").read_bytes()
