"""Writes what the package installs beside the program: ``python docs/shared_files.py``; ``--check`` only compares.

Manual pages, completions and the skill for agents are kept in ``share/``, so that a build needs nothing but the files:
what is there goes to ``share/`` of the environment that the package is installed into.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import click
import man_pages

from nccl_inspect.cli import about
from nccl_inspect.extras.assistant import server

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "share"
SCRIPTS = {
    "bash": "bash-completion/completions/nccl-inspect",
    "zsh": "zsh/site-functions/_nccl-inspect",
    "fish": "fish/vendor_completions.d/nccl-inspect.fish",
}
"""Where each shell looks for the completions of a program, below ``share/``."""


def main() -> None:
    """Write the files and remove what is no more; with ``--check`` exit with status 1 where any differs."""
    check = "--check" in sys.argv[1:]
    wanted = dict(files())
    there = {path.relative_to(FOLDER).as_posix() for path in FOLDER.rglob("*") if path.is_file()}
    stale = sorted(name for name in wanted.keys() | there if _text(name) != wanted.get(name))
    for name in stale:
        path = FOLDER / name
        if not check and name in wanted:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(wanted[name], encoding="utf-8")
        elif not check:
            path.unlink()
        click.echo(f"share/{name}: {'out of date' if check else 'written' if name in wanted else 'removed'}")
    sys.exit(1 if stale and check else 0)


def files() -> Iterator[tuple[str, str]]:
    """Yield the text of each file, by its name below ``share/``."""
    for name, text in man_pages.pages():
        yield f"man/man1/{name}.1", text
    for shell, name in SCRIPTS.items():
        yield name, about.completion_script(shell) + "\n"
    text = Path(server.__file__).with_name("skill.md").read_text(encoding="utf-8")
    skill = text.replace("{wording}", server.TEXTS["wording"]).replace("{note}", server.NOTE)
    yield "skills/nccl-inspect/SKILL.md", skill


def _text(name: str) -> str | None:
    path = FOLDER / name
    return path.read_text(encoding="utf-8") if path.is_file() else None


if __name__ == "__main__":
    main()
