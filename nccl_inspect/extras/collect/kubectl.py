"""``kubectl nccl JOB``: collects, judges and reports the logs of a job's pods and the evidence beside them.

kubectl runs ``kubectl-nccl`` for ``kubectl nccl``.
"""

from __future__ import annotations

import itertools
import os
import sys
from contextlib import ExitStack, chdir
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NoReturn

import click

from nccl_inspect import cli, report
from nccl_inspect.cli import print_stderr, shared
from nccl_inspect.extras.collect import cli_collect, kubernetes
from nccl_inspect.extras.collect.collection import Collection, Wanted
from nccl_inspect.pipeline import reading
from nccl_inspect.util.interruption import PROCESS
from nccl_inspect.util.text import cut
from nccl_inspect.util.wording import count

PROGRAM = "kubectl nccl"
_EXAMPLES = """
Examples:
  kubectl nccl llama                            the job, or the pod, of this name
  kubectl nccl pytorchjob/llama -n training     all its pods; restarted ones with their earlier logs
  kubectl nccl -l app=llama --context west      pods by their labels
  kubectl nccl llama --keep llama/              and keep the collected files
  kubectl nccl llama --format html -o llama.html
"""
_MAX_FAILURES = 3


@click.command(
    epilog=_EXAMPLES,
    context_settings={"help_option_names": ["-h", "--help"]},
    short_help="Report on a Kubernetes job from the logs of its pods.",
)
@click.argument("name", required=False, default="", metavar="[JOB]")
@click.option("-l", "--selector", default="", metavar="LABELS", help="Select pods by label instead of JOB.")
@click.option("-n", "--namespace", default="", metavar="NAME", help="Namespace. Default: the context's.")
@click.option("--context", default="", metavar="NAME", help="Context of the kubeconfig. Default: the current one.")
@cli_collect.timeout_option
@click.option("--keep", default="", metavar="FOLDER", type=click.Path(), help="Keep the collected files in FOLDER.")
@shared.format_option(report.names())
@shared.gate_options
@shared.job_options
@shared.platform_options
@shared.output_options
@shared.verbose_option("Show evidence lines in full.")
@click.pass_context
def command(
    ctx: click.Context,
    name: str,
    selector: str,
    namespace: str,
    context: str,
    timeout: float,
    keep: str,
    form: str,
    fail_on: str,
    options: reading.Options,
    out: shared.Output,
) -> int:
    """Report on a job: verdict, paths, findings and fixes, from the logs, manifests and events of its pods.

    JOB is the name of a job or pod, or KIND/NAME: job, jobset, leaderworkerset, mpijob, pytorchjob, raycluster,
    trainjob, vcjob, pod. Only read commands of kubectl run (get, logs, describe); nothing in the cluster is changed.
    Every rank of the job must run with NCCL_DEBUG=INFO in its environment.
    """
    if name and selector:
        raise click.UsageError("JOB and -l exclude each other; omit one")
    if not name and not selector:
        raise click.UsageError("name a job: kubectl nccl JOB; or its pods: kubectl nccl -l LABELS")
    wanted = Wanted(name or selector, namespace, context)
    # The settings are those of the current folder, and errors in them are reported before anything is collected.
    options = shared.with_settings_file(options)
    ctx.meta.update({f"{shared.__name__}.config": None, f"{shared.__name__}.no_config": True})
    options = replace(options, topologies=tuple(map(os.path.abspath, options.topologies)))
    with ExitStack() as stack:
        if keep:
            folder = cli_collect.new_folder(keep, "--keep")
        else:  # a temporary one is removed even after Ctrl-C
            temporary = TemporaryDirectory(prefix="nccl-inspect-")
            stack.enter_context(PROCESS.undo_with(temporary.cleanup))
            folder = Path(stack.enter_context(temporary))
        _collect(folder, wanted, timeout)
        with chdir(folder):  # the report names logs relative to the folder, which may be temporary
            job = shared.read((".",), options, tells_all=True)
        out.write_lines(report.render_lines(form, job, out.style))
        return shared.status(job, fail_on)


def main() -> NoReturn:
    """Run the plugin."""
    cli.main(cli.prepare_command(command), PROGRAM)


def _collect(folder: Path, wanted: Wanted, timeout: float) -> None:
    is_seen, numbers = sys.stderr is not None and sys.stderr.isatty(), itertools.count(1)

    def show(words: str) -> None:
        if is_seen:
            click.echo(f"\r\x1b[K{cut(f'collecting {next(numbers)}: {words}', 78)}", err=True, nl=False)

    collection = Collection(folder, show, timeout)
    try:
        kubernetes.collect(collection, wanted)
    finally:
        if is_seen:
            click.echo("\r\x1b[K", err=True, nl=False)
    failures = collection.failures
    logs = [entry for entry in failures if entry.file.startswith("logs/")]
    others = [entry for entry in failures if entry not in logs]
    told = [*logs[:_MAX_FAILURES], *others[:1]]  # one of the others suffices: a role may not see nodes
    for entry in told:
        print_stderr(f"{entry.what}: {entry.problem}")
    if more := len(failures) - len(told):
        print_stderr(f"{count(more, 'more command')} failed: --keep FOLDER lists them")
