"""``nccl-inspect help``: the same as ``--help``."""

from __future__ import annotations

import click

_EXAMPLES = """
Examples:
  nccl-inspect help
  nccl-inspect help paths
"""


@click.command(epilog=_EXAMPLES, short_help="Print the help of a command.")
@click.argument("name", metavar="[COMMAND]", required=False)
@click.pass_context
def command(ctx: click.Context, name: str | None) -> None:
    """Print the help of a command, like --help; without COMMAND, the list of commands."""
    program = ctx.find_root()
    assert isinstance(program.command, click.Group)
    if name is None:
        click.echo(program.get_help())
        return
    wanted = program.command.get_command(program, name)
    assert wanted is not None  # the group raises an error for unknown names
    click.echo(wanted.context_class(wanted, program, name).get_help())
