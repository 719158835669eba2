"""``nccl-inspect collect``: logs and the evidence for their findings, in one folder."""

from __future__ import annotations

import os
import tarfile
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from nccl_inspect.cli import print_stderr, shared
from nccl_inspect.errors import NcclInspectError
from nccl_inspect.extras import collect as collecting
from nccl_inspect.extras.collect.collection import INDEX, Collection, Wanted
from nccl_inspect.util import atomic_files
from nccl_inspect.util.wording import count

_PACKED = (".tar.gz", ".tgz")
_EXAMPLES = """
Examples:
  nccl-inspect collect kubernetes job-name=llama -n training -o llama/
  nccl-inspect collect kubernetes pytorchjob/llama --dry-run   (only print the commands)
  nccl-inspect collect slurm 4711 -o job-4711.tar.gz
  srun --jobid 4711 --overlap --ntasks-per-node=1 nccl-inspect collect host -o job-4711/
  nccl-inspect summarize job-4711/

Exit status: 0 done, even if some commands failed; 1 nothing could be collected
"""


@click.command(epilog=_EXAMPLES, short_help="Collect logs, manifests and the state of machines in one folder.")
@click.argument("target", type=click.Choice(collecting.names()), metavar="|".join(collecting.names()))
@click.argument("argument", required=False, default="", metavar="[SELECTOR|JOBID]")
@click.option("-n", "--namespace", default="", metavar="NAME", help="Kubernetes namespace. Default: the context's.")
@click.option(
    "--context", default="", metavar="NAME", help="Kubernetes context of the kubeconfig. Default: the current one."
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=60,
    show_default=True,
    metavar="SECONDS",
    help="Stop a command after this time; a command that fetches a log, after ten times as long.",
)
@click.option("--dry-run", is_flag=True, help="Print the commands without running them.")
@shared.target_option(
    "Write to this folder, or to an archive: FILE.tar.gz. Default: a new folder, nccl-TARGET-TIME.", default=""
)
def command(
    target: str, argument: str, namespace: str, context: str, timeout: float, dry_run: bool, output: str
) -> int:
    """Collect a job's logs and the evidence that settles their findings: manifests, events, limits, GPUs, NICs, RAS.

    Only read commands run (get, logs, describe; scontrol show, sacct), each shown on stderr. Failed commands are
    listed in collection.txt; the others still run. Secrets in manifests are masked, logs are left unchanged: run
    'nccl-inspect anonymize' before you share them. SELECTOR is a label selector or KIND/NAME.
    """
    module = collecting.load(target)
    if module.ARGUMENT and not argument:
        raise click.UsageError(f"{target} needs {module.ARGUMENT}: {module.HELP}")
    if argument and not module.ARGUMENT:
        raise click.UsageError(f"{target} collects {module.HELP}; omit '{argument}'")
    wanted = Wanted(argument, namespace, context)
    name = output or f"nccl-{target}-{time.strftime('%Y%m%d-%H%M%S')}"
    if dry_run:
        module.collect(Collection(None, lambda words: print_stderr(f"+ {words}"), timeout), wanted)
        return 0
    if not name.endswith(_PACKED):
        folder = _make_folder(name)
        try:
            return _collect(module, wanted, timeout, folder, name)
        finally:
            with suppress(OSError):  # it is not empty
                folder.rmdir()
    inside = next(name.removesuffix(suffix) for suffix in _PACKED if name.endswith(suffix))
    with (
        tempfile.TemporaryDirectory(prefix="nccl-collect-") as temporary,
        atomic_files.open_replacement(name, "-o", mode=0o600) as file,
    ):
        status = _collect(module, wanted, timeout, Path(temporary), name)
        with tarfile.open(fileobj=file, mode="w:gz") as archive:
            archive.add(temporary, arcname=Path(inside).name)
    return status


def _collect(module: Any, wanted: Wanted, timeout: float, folder: Path, name: str) -> int:
    collection = Collection(folder, lambda words: print_stderr(f"+ {words}"), timeout)
    module.collect(collection, wanted)
    failed = f", {count(len(collection.failures), 'failure')} (see {INDEX})" if collection.failures else ""
    print_stderr(f"{name}: {count(len(collection.successes), 'file')}{failed}")
    return 0 if collection.successes else 1


def _make_folder(name: str) -> Path:
    folder = Path(name)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        problem = "already holds a collection" if (folder / INDEX).exists() else ""
        if not problem and not os.access(folder, os.W_OK):
            problem = "no write permission"
    except OSError as error:
        problem = error.strerror or str(error)
    if problem:
        raise NcclInspectError(f"{name}: {problem}", "choose another folder with -o")
    return folder
