"""``nccl-inspect summarize``: the report on a job."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from nccl_inspect import report
from nccl_inspect.cli import print_stderr, shared
from nccl_inspect.errors import suggestion

if TYPE_CHECKING:
    from nccl_inspect.pipeline.options import Options

_BRIEF = ("text", "markdown")  # formats of `--brief`


def _fields(ctx: click.Context, _: click.Parameter, values: tuple[str, ...]) -> frozenset[str]:
    wanted = [field for value in values for field in value.replace(" ", "").split(",") if field]
    if wanted and not ctx.resilient_parsing:
        from nccl_inspect.model.document import fields  # only on request

        for name in wanted:
            if name not in fields():
                hint = suggestion(name, fields()) or f"choose from {', '.join(fields())}"
                raise click.UsageError(f"no field '{name}' in the JSON document; {hint}")
    return frozenset(wanted)


@click.command(short_help="Report the verdict, network, paths and findings of one job.")
@shared.inputs
@shared.format_option(report.names(), report.load)
@shared.gate_options
@shared.read_options
@shared.output_options
@click.option("--cluster", metavar="ADDRESS", hidden=True)
@shared.verbose_option("Show evidence lines in full.")
@click.option(
    "--brief",
    "is_brief",
    is_flag=True,
    help="Ten lines for a colleague: verdict, culprit, cause, first fix, evidence; text or Markdown.",
)
@click.option(
    "--only",
    multiple=True,
    metavar="FIELD,…",
    callback=_fields,
    help="JSON: only these top-level fields, such as verdict,head,findings. May be repeated. The result lacks fields "
    "that the schema requires.",
)
@click.option(
    "--indent/--no-indent",
    default=None,
    help="JSON: indented for reading, as on a terminal, or compact, as in files and pipes.",
)
def command(
    logs: tuple[str, ...],
    form: str,
    is_brief: bool,
    only: frozenset[str],
    indent: bool | None,
    fail_on: str,
    cluster: str | None,
    options: Options,
    out: shared.Output,
) -> int:
    """Report the verdict, job, network, paths and findings of one job.

    Examples:
      nccl-inspect summarize job.log
      kubectl logs llama-node-0-0 | nccl-inspect summarize
      nccl-inspect summarize job.log --brief    (ten lines for a colleague)
      nccl-inspect summarize rank*.log --format json -o job.json
      nccl-inspect summarize job.log --format json --only verdict,findings
      nccl-inspect summarize job.log --topology topo.txt    (nvidia-smi topo -m > topo.txt)
      nccl-inspect summarize logs/ --job 2    (of a folder with several jobs)
      nccl-inspect summarize job.log --fail-on error --select 'socket-*' --select gdr-disabled
    """
    if cluster:
        print_stderr(f"--cluster {cluster}: no cluster is used: the log is read here")
    if is_brief and form not in _BRIEF:
        raise click.UsageError(f"--brief supports {' or '.join(_BRIEF)}, not {form}; omit one of them")
    if form != "json" and (only or indent is not None):
        raise click.UsageError(f"--only and --indent are for --format json, not {form}; omit them")

    job = shared.read(logs, options, tells_all=True)
    if is_brief:
        from nccl_inspect.report import brief  # only on request

        out.write(brief.render(job, form))
    else:
        format_, style = report.load(form), out.style.with_fields(only=only)
        style = style if indent is None else style.with_fields(indent=indent)
        if hasattr(format_, "pieces"):
            out.write_lines(format_.pieces(job, style))
        else:
            out.write(format_.render(job, style))
    return shared.status(job, fail_on)
