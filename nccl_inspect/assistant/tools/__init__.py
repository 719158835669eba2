"""Tools, one module each, found by their files.

A module states ``TITLE`` and ``tool(reader)``, which gives the function that the server offers under the module's name:
its docstring is what assistants read, its annotations are the schemas.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Annotated, Any

from pydantic import Field

from nccl_inspect.assistant.reader import Reader
from nccl_inspect.util.discovery import modules

_PARTS = ("around", "shapes")

Name = Annotated[str, Field(max_length=4096)]
Logs = Annotated[
    Annotated[list[Name], Field(min_length=1, max_length=64)] | Name,
    Field(
        description="The log of one job: paths of files, folders (with the evidence beside the logs) or archives, or "
        "globs. Relative paths begin at the folder that the server may read."
    ),
]
Platform = Annotated[
    str | None, Field(description="Machine type such as p5.48xlarge, where the log does not name it.", max_length=80)
]
Topology = Annotated[
    Annotated[list[Name], Field(max_length=16)] | Name | None,
    Field(description="Files with the output of 'nvidia-smi topo -m' or NCCL's topology XML."),
]
WhichJob = Annotated[
    str | None,
    Field(description="Number or name of one of several jobs in the input. Default: the worst.", max_length=200),
]
WhichRun = Annotated[
    int | None, Field(description="Which run of a job that was restarted, 1 the first. Default: the newest.", ge=1)
]
Offset = Annotated[int, Field(description="Entries to leave out: see 'more' of the answer before.", ge=0)]


def several(names: list[str] | str | None) -> list[str]:
    """Some names, of which there may be one or none."""
    return [names] if isinstance(names, str) else list(names or ())


def all_of(reader: Reader) -> Iterator[tuple[str, str, Callable[..., Any]]]:
    """The tools: name, title and function.

    Args:
        reader: what they read with.
    """
    for name in modules(__file__, *_PARTS):
        module = import_module(f"{__name__}.{name}")
        yield name, module.TITLE, module.tool(reader)
