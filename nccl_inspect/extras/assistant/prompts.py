"""Prompts: which tools to call in which order, and how to word uncertain results; the skill says the same."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.prompts import Prompt
from pydantic import Field

from nccl_inspect.extras.assistant.results import NOTE, cut_text

Log = Annotated[str, Field(description="The log of the job: a file, a folder or a glob.")]
_, *_PARTS = re.split(r"^# ([a-z]+):\n", (Path(__file__).parent / "prompts.txt").read_text("utf-8"), flags=re.MULTILINE)
TEXTS = {name: text.strip() for name, text in zip(_PARTS[::2], _PARTS[1::2], strict=True)}
"""The parts of ``prompts.txt``, by their names."""


def skill() -> str:
    """Return the skill for agents that run commands (``SKILL.md``)."""
    text = (Path(__file__).parent / "skill.md").read_text(encoding="utf-8")
    return text.replace("{wording}", TEXTS["wording"]).replace("{note}", NOTE)


def add(server: MCPServer) -> None:
    """Add the prompts to a server."""
    hang: Callable[..., str] = _ask_about_hang
    slow: Callable[..., str] = _ask_about_speed
    for name, title, words, function in (
        ("why-does-my-job-hang", "Why does my job hang?", "Find the rank that is to blame, and what to do.", hang),
        ("why-is-it-slow", "Why is it slow?", "Find the paths that should be faster, and why they are not.", slow),
    ):
        server.add_prompt(Prompt.from_function(function, name=name, title=title, description=words))


def _ask_about_hang(log: Log) -> str:
    return "\n\n".join((TEXTS["hang"].format(log=cut_text(log)), TEXTS["wording"], NOTE))


def _ask_about_speed(
    log: Log, good_log: Annotated[str, Field(description="The log of a run that was fast, if there is one.")] = ""
) -> str:
    good = f"A run that was fast: {cut_text(good_log)}\n" if good_log else ""
    return "\n\n".join((TEXTS["slow"].format(log=cut_text(log), good=good), TEXTS["wording"], NOTE))
