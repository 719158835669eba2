"""Tools, one module each, found by their files.

A module defines ``TITLE`` and ``tool(reader)``, which returns the function that the server offers under the module's
name: assistants read its docstring, and its annotations are the schemas.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Annotated, Any

from pydantic import Field

from nccl_inspect.extras.assistant.reader import LogReader
from nccl_inspect.util.discovery import modules

_PARTS = ("around", "shapes")

Name = Annotated[str, Field(max_length=4096)]
Logs = Annotated[
    Annotated[list[Name], Field(min_length=1, max_length=64)] | Name,
    Field(
        description="The log of one job: files, folders (with the evidence beside the logs), archives or globs. "
        "Relative paths start at the folder that the server may read."
    ),
]
Platform = Annotated[
    str | None, Field(description="Machine type, such as p5.48xlarge, if the log does not name it.", max_length=80)
]
Topology = Annotated[
    Annotated[list[Name], Field(max_length=16)] | Name | None,
    Field(description="Files with the output of 'nvidia-smi topo -m' or NCCL's topology XML."),
]
WhichJob = Annotated[
    str | None,
    Field(description="Number or name of a job, if the input holds several. Default: the worst.", max_length=200),
]
WhichRun = Annotated[
    int | None, Field(description="Run of a restarted job; 1 is the first. Default: the latest.", ge=1)
]
Offset = Annotated[int, Field(description="Entries to skip: see 'more' in the previous answer.", ge=0)]


def several(names: list[str] | str | None) -> list[str]:
    """Names given as one string, a list or nothing, as a list."""
    return [names] if isinstance(names, str) else list(names or ())


def all_of(reader: LogReader) -> Iterator[tuple[str, str, Callable[..., Any]]]:
    """The tools: name, title and function."""
    for name in modules(__file__, *_PARTS):
        module = import_module(f"{__name__}.{name}")
        yield name, module.TITLE, module.tool(reader)
