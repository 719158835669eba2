"""The page for NCCL's own documentation, "Reading the NCCL log", in reStructuredText, from the grammar."""

from __future__ import annotations

from collections.abc import Iterator

from nccl_inspect.grammar import files
from nccl_inspect.scanning import meaning

TITLE = "Reading the NCCL log"
INTRODUCTION = """\
With ``NCCL_DEBUG=INFO`` each rank prints what it found and what it chose. This page says what the lines mean that
answer most questions, in the order in which they appear. ``NCCL_DEBUG_SUBSYS=INIT,ENV,BOOTSTRAP,NET,GRAPH`` shows
all of them.

A line begins with the host, the process, the thread and the current CUDA device in brackets, ``node-0:4711:4801
[2] NCCL INFO``; since 2.26 a time may come before (``NCCL_DEBUG_TIMESTAMP_FORMAT``). The number in brackets is no
rank: ranks are in the lines about a communicator. Lines of several processes of one file may be torn;
``NCCL_DEBUG_FILE=nccl.%h.%p.log`` gives each process a file of its own."""
SECTIONS: dict[str, tuple[str, tuple[str, ...]]] = {
    "Versions and settings": (
        "Compare these between ranks: releases that differ do not work together, and a setting that one rank lacks "
        "may let it wait for the others.",
        ("nccl-version", "cuda-driver", "env-setting", "env-invalid"),
    ),
    "The network": (
        "The network in use is decided here, long before data are sent. A plugin that is missing is normal where none "
        "is needed; between hosts, ``NET/Socket`` where the hosts have InfiniBand, RoCE or EFA is a fallback to TCP.",
        ("bootstrap-interface", "net-plugin-loaded", "net-ib", "net-ib-none", "net-socket", "network-in-use"),
    ),
    "Communicators": (
        "A communicator is complete when each of its ranks has printed ``Init COMPLETE``. If the log ends before, the "
        "ranks without ``Init START`` are those that the others wait for. Ranks in all later lines count within the "
        "communicator: rank 1 of a communicator that was split is not rank 1 of the job.",
        ("comm-init", "comm-split", "comm-shape", "channel-counts", "ring-order", "trees", "comm-end"),
    ),
    "Paths": (
        "One line for each channel and direction says how data go from one rank to another. Since 2.22 connections "
        "are made by the first operation that needs them: a pair without a line has not communicated yet.",
        ("channel-p2p", "channel-shm", "channel-net", "connected-rings", "connected-trees"),
    ),
    "GPUDirect RDMA": (
        "A path over the network uses GPUDirect RDMA if its line ends in ``GDRDMA``; these lines say why it does not.",
        ("gdr-nic-enabled", "gdr-nic-disabled", "gdr-enabled-29", "gdr-disabled-29"),
    ),
}
_WIDEST = 110
ENDING = """\
When a job fails
----------------

* The first warning by time matters most. ``Connection closed by remote peer`` is printed by the ranks that are
  left: the one to look at is the peer, which printed something else before, or nothing.
* ``file:line -> result`` lines are one error on its way up the call stack; the line before the first of them has
  the reason.
* If ranks wait for each other, RAS tells which of them launched fewer operations than the others (``ncclras
  -v``).
"""


def page() -> Iterator[str]:
    """Yield the lines of the page."""
    shipped = (files.read(file.read_text(encoding="utf-8"), file.name) for file in files.list_files())
    by_name = {one.name: one for members in shipped for one in members if one.dialect == "nccl"}
    yield from (".. Made from the grammar of nccl-inspect by docs/generate.py.", "", TITLE, "=" * len(TITLE), "")
    yield INTRODUCTION
    for heading, (prose, names) in SECTIONS.items():
        yield from ("", heading, "-" * len(heading), "", prose, "", ".. list-table::", "   :header-rows: 1")
        yield from ("   :widths: 50 15 35", "", "   * - Line", "     - Releases", "     - Meaning")
        for name in names:
            one = by_name[name]
            sample = max(
                (text.strip() for text in one.samples if len(text) <= _WIDEST), key=len, default=one.samples[0]
            )
            yield f"   * - ``{sample}``"
            yield f"     - {meaning.releases(one)}"
            yield f"     - {one.says.replace('`', '``').replace('*', chr(92) + '*').replace('|', chr(92) + '|')}"
    yield ""
    yield ENDING
