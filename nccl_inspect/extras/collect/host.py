"""The state of this machine: GPUs, NICs, limits, kernel. What is not installed is left out."""

from __future__ import annotations

import glob
import socket
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from nccl_inspect.extras.collect import ras
from nccl_inspect.extras.collect.commands import Command

if TYPE_CHECKING:
    from nccl_inspect.extras.collect import Wanted
    from nccl_inspect.extras.collect.collection import Collection

ARGUMENT = ""
HELP = "this machine, and the job that runs on it (RAS)"
KERNEL_LOG = "dmesg"
COMMANDS = (
    Command("nvidia-smi-L", ("nvidia-smi", "-L")),
    Command("nvidia-smi-q", ("nvidia-smi", "-q")),
    Command("nvidia-smi-topo", ("nvidia-smi", "topo", "-m")),
    Command("nvidia-smi-nvlink", ("nvidia-smi", "nvlink", "-s")),
    Command("nvidia-smi-nvlink-errors", ("nvidia-smi", "nvlink", "-e")),
    Command("ibstat", ("ibstat",)),
    Command("ibv_devinfo", ("ibv_devinfo", "-v")),
    Command("rdma-link", ("rdma", "link")),
    Command("show_gids", ("show_gids",)),
    Command("fi_info", ("fi_info", "-p", "efa"), keeps_failed=True),
    Command("nic-counters", ("grep", "-H", ".", "/sys/class/infiniband/*/ports/*/counters/*"), keeps_failed=True),
    Command("nic-hw-counters", ("grep", "-H", ".", "/sys/class/infiniband/*/ports/*/hw_counters/*"), keeps_failed=True),
    Command("lsmod", ("lsmod",)),
    Command("ulimit", ("bash", "-c", "ulimit -a")),
    Command("limits", ("cat", "/proc/self/limits")),
    Command("df", ("df", "-h", "/dev/shm")),  # noqa: S108 - what NCCL uses
    Command("ip-addr", ("ip", "addr")),
    Command(KERNEL_LOG, ("dmesg", "-T")),
    Command("uname", ("uname", "-a")),
)
"""Names without a suffix: what is recognised by its contents is read, and nothing is taken for a log."""
_RAS_SECONDS = 10.0


def collect(collection: Collection, _wanted: Wanted) -> None:
    """Gather the files."""
    ask(collection)
    machine(collection)
    collection.write_index(folder())


def machine(collection: Collection) -> None:
    """Gather what commands say of this machine."""
    collection.run_all(_expanded(COMMANDS))


def ask(collection: Collection, seconds: float = _RAS_SECONDS) -> None:
    """Ask RAS, in both forms."""
    where = ras.address()
    for form in ras.FORMS:
        collection.keep(
            f"{folder()}/ras.{'json' if form == 'json' else 'answer'}",
            f"ask RAS at {where} for {form}",
            partial(ras.answer, where, form, seconds),
        )


def folder() -> str:
    """The folder of this machine, named as NCCL names it."""
    return f"hosts/{name()}"


def name() -> str:
    """The name of this machine, as NCCL prints it: without its domain."""
    return socket.gethostname().partition(".")[0] or "host"


def _expanded(commands: Iterable[Command]) -> Iterator[Command]:
    """The commands with the files that their patterns match; without those that have none."""
    for command in commands:
        # The patterns are absolute.
        matches = [sorted(glob.glob(word)) if "*" in word else [word] for word in command.argv]  # noqa: PTH207
        if all(matches):
            yield replace(
                command, file=f"{folder()}/{command.file}", argv=tuple(word for some in matches for word in some)
            )
