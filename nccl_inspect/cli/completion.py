"""``nccl-inspect completion``: shell completion of commands, options and names."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from nccl_inspect.cli import COMPLETE_VARIABLE, cli, shared, writing

_SHELLS = ("bash", "zsh", "fish")
_SPLIT, _SPLIT_ONCE = 'string split ","', 'string split --max 1 ","'
"""How Click's script for fish splits a kind and its value: descriptions contain commas."""
_EXAMPLES = """
Examples:
  nccl-inspect completion bash > ~/.nccl-inspect.bash
  eval "$(nccl-inspect completion zsh)"
"""


@click.command(epilog=_EXAMPLES, short_help="Print a shell completion script.")
@click.argument("shell", type=click.Choice(_SHELLS), metavar="bash|zsh|fish")
@shared.output_options
def command(shell: str, out: writing.Output) -> None:
    """Print a script that makes the shell complete commands, options, rules, formats, platforms and files.

    Load it when the shell starts: from ~/.bashrc or ~/.zshrc, or as a file in ~/.config/fish/completions.
    """
    out.write(script(shell))


def script(shell: str) -> str:
    """The script for a shell; it queries the installed program, so it stays valid when names are added."""
    kind = get_completion_class(shell)
    assert kind is not None
    completion = kind(cli, {}, "nccl-inspect", COMPLETE_VARIABLE)
    text = completion.source_template % completion.source_vars()
    return text.replace(_SPLIT, _SPLIT_ONCE).strip()
