"""What a statement is: its roles (``role:``), and the layer of failure (``layer:``), how near to a cause it is.

Rules and engines select lines by role (``facts.with_role``), so a new line of a kind is one block in a grammar file. In
one process, what is lower explains what is higher. The layer of a production follows from its roles and its tone; one
that is elsewhere states it.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import IntEnum

ROLES = {
    # How a job ends, and who passes it on
    "ends-job": "A launcher, a scheduler, a shell or the process itself says that processes have ended, or ends them.",
    "forced-end": "Somebody ended processes from outside: that is not a failure of theirs.",
    "ends-one": "It is known of one process only that somebody ended it: others may run on.",
    "ends-worker": "A launcher ends one of its processes, as it does where another one failed or ended.",
    "restart": "A launcher starts the processes anew after a failure.",
    "memory-kill": "The kernel, a scheduler or Ray killed processes because memory ran out.",
    "told-late": "It is printed when a step or a pod ends, or by who looks at it later: not when it happened.",
    "propagated-error": "A caller, a launcher or a shell passes on that something failed: the cause is elsewhere.",
    "failed-call": "A program prints the error that a call of NCCL returned to it.",
    "nccl-result": "A program prints the result of a call in NCCL's own words (ncclGetErrorString).",
    "logged-retry": "PyTorch's logger prints it and PyTorch may try again: only as an exception it is an error.",
    "program-cuda-error": "The text of a CUDA error, as programs and frameworks print it.",
    "program-exception": "An exception of the program, which may be what ended its rank.",
    "catchable": "An exception that programs may catch: rules of their own report it.",
    "nccl-exception": "An exception of a framework because a call of NCCL failed.",
    "store-failed": "PyTorch's store, through which ranks and nodes find each other, failed, or ranks did not join it.",
    "watchdog-status": "How far a process group of PyTorch came, as its watchdog says at a time-out.",
    "watchdog-dump": "PyTorch's watchdog says why it dumps what it recorded.",
    "test-end": "nccl-tests says how a test ended.",
    "thread-refused": "A library of the program could not start a thread.",
    # What goes on
    "survivable": "A plugin, a NIC or one of its ports does not come up. NCCL continues with what is left.",
    "works": "Work was done by then: a server is ready, or a launcher says that its processes ended in order.",
    "succeeded": "A program says that it reached its goal: what fails below fails while it ends.",
    "mid-run": "It is printed after a job has begun to work, never when it starts.",
    "probe": "NCCL asks for something that it can do without: no error at the level INFO.",
    # Lists
    "rank-list": "nccl-tests says which GPU a rank has.",
    "gpu-list": "A line of nvidia-smi -L.",
    "topology-matrix": "A line of the matrix of nvidia-smi topo -m.",
    "parallel-sizes": "The arguments of a framework that name the sizes of its parallel groups.",
    # Connections of the set-up
    "connection-failed": "A TCP connection was given up.",
    "connection-retry": "A TCP connection failed and is tried again.",
    "socket-refused": "The system refuses a socket of the set-up.",
    "rank-misfit": "What rank 0 gets at the set-up does not fit its job: of two jobs, or of another release.",
    "misread-size": "A message of the set-up has another size than expected.",
    "rank-counts-differ": "The processes of a communicator do not agree on the number of ranks.",
    "stranger": "Somebody connected who is not a rank of this communicator.",
    "garbled-address": "What a rank got for an address is none.",
    "bad-comm-id": "NCCL_COMM_ID cannot be used.",
    "no-oob-device": "NCCL_OOB_NET_IFNAME fits no device.",
    # Ranks of one host
    "handle-socket": "A handle of GPU memory could not be passed through a Unix socket.",
    "handle-refused": "What a rank of the same host handed over could not be sent, received or opened.",
    "shm-segment": "An operation on a segment of shared memory failed.",
    # Networks
    "no-ib": "NCCL finds no InfiniBand or RoCE NIC, or no library to look for one.",
    "no-network": "NCCL has none of the networks that it was asked for.",
    "dmabuf-missing": "Kernel, driver or settings rule out DMA-BUF: GPUDirect RDMA needs the peer-memory module then.",
    "gdr-refused": "Driver or plugin say that a NIC cannot reach GPU memory.",
    "gdr-too-far": "NCCL knows that GPUDirect RDMA is supported, and GPU and NIC are too far apart for it.",
    "calls-compared": "A framework compared what the ranks call, and they differ.",
    "size-mismatch": "A network got a message of another size than the receiver expects.",
    "completion-error": "A NIC reports a failed transfer with a status of InfiniBand verbs.",
    "efa-completion": "aws-ofi-nccl, or libfabric itself, reports a failed transfer with the code of the provider.",
    "beside-completion": "aws-ofi-nccl prints it beside a failed transfer, without its code.",
    "no-provider": "All searches of aws-ofi-nccl for a provider failed, or what they found cannot be used.",
    "searches-failed": "aws-ofi-nccl found no provider at all.",
    "memory-not-registered": "aws-ofi-nccl could not register memory.",
    "daemon-ends": "The receive daemon of GPUDirect-TCPXO says in its own log why it ends.",
    "daemon-gone": "The receive daemon of GPUDirect-TCPXO does not answer.",
    # What watches the machine
    "gpu-fault": "A monitor or a service of the machine finds a GPU, an NVLink or an NVSwitch broken.",
    # What a program asks for
    "foreign-memory": "An argument is memory that is none of this GPU, or was freed.",
    "missing-pointer": "An argument that must be there is not.",
    "bad-argument": "An argument has a value that is not possible.",
    "unset-structure": "An argument is a structure that its initializer did not fill in.",
    "other-release": "Program and library were built for different releases.",
    "dead-communicator": "A call names a communicator that is destroyed, damaged or not ready.",
    "bad-group": "Calls are in one group that may not.",
    "fp8-reduction": "A reduction of 8-bit floating point numbers that this GPU cannot do.",
    "gpu-network": "Communication that the GPU starts, or one-sided communication, is not possible here.",
    "calls-full": "A table of calls is full: a group or a graph has too many.",
    "channels-full": "There are more channels than an algorithm can run.",
    "transfers-full": "A table of transfers is full: too many are under way on one connection.",
    # What NCCL finds of the machine
    "nvswitch": "The GPUs of a rank are behind an NVSwitch: they report a fabric, or can multicast.",
    "rings-broken": "The parts of the ranks form no ring or no tree.",
    "file-refused": "A topology or graph file cannot be read: the rank stops.",
    "doubtful-topology": "NCCL's reader of topologies complains, of a file or of what it detected itself.",
    "topology-incomplete": "The topology of this rank lacks what another rank or the search asks for.",
    "host-identity": "NCCL cannot determine which ranks are on one host.",
}
"""The kinds of statements that lines make, each with a sentence for authors of grammar files."""


class Layer(IntEnum):
    """Holds how far a statement is from a cause."""

    HARDWARE = 0
    SYSTEM = 1
    """The machine and its operating system: memory, limits, files, scheduler."""
    SETTING = 2
    """Variables, files and versions: no event, but how things are."""
    PROGRAM = 3
    """What the program did: an exception, a wrong call, a call that one rank did not make."""
    RESOURCE = 4
    """What NCCL asked the system for and did not get."""
    CALL = 5
    """A call of NCCL failed; why is said elsewhere."""
    FRAMEWORK = 6
    """What PyTorch and others raise because a call of NCCL failed."""
    END = 7
    """A process ended."""
    LAUNCHER = 8
    """Launchers, schedulers and users that end processes, or report that some ended."""
    LOSS = 9
    """A connection was lost: its other end, or the way to it, is gone."""
    WAIT = 10
    """A rank waited for others until it gave up."""
    NONE = 11
    """It says nothing about a failure."""


FOREIGN = frozenset((Layer.LOSS, Layer.WAIT))
"""What a process says of others: a failure does not begin there if one of these is known to have failed."""
BY_NAME = {layer.name.lower(): layer for layer in Layer}
"""The layers as grammar files and rules name them."""

_OF_ROLE = {
    "memory-kill": Layer.SYSTEM,
    "forced-end": Layer.LAUNCHER,
    "watchdog-status": Layer.WAIT,
    "watchdog-dump": Layer.NONE,
    "logged-retry": Layer.NONE,
    "connection-retry": Layer.NONE,
    "store-failed": Layer.LOSS,
    "connection-failed": Layer.LOSS,
    "completion-error": Layer.LOSS,
    "efa-completion": Layer.LOSS,
    "daemon-gone": Layer.LOSS,
    "program-cuda-error": Layer.PROGRAM,
    "bad-argument": Layer.PROGRAM,
    "thread-refused": Layer.SYSTEM,
    "nccl-exception": Layer.FRAMEWORK,
    "failed-call": Layer.CALL,
    "nccl-result": Layer.CALL,
    "dead-communicator": Layer.CALL,
    "program-exception": Layer.PROGRAM,
    "ends-job": Layer.LAUNCHER,
    "propagated-error": Layer.FRAMEWORK,
}
"""The first of these that a production has decides."""
_OF_EVENT = {"CollectiveTimeout": Layer.WAIT, "ErrorCascade": Layer.CALL, "ProcessEnded": Layer.END}
_OF_ECHO = {"nccl": Layer.LOSS, "torch": Layer.NONE, "launchers": Layer.LAUNCHER}
"""By dialect the layer of what only repeats a failure (``tone=echo``)."""


def layer_of(stated: str, event: str, roles: Collection[str], tone: str, dialect: str) -> Layer:
    """Return the layer of a production.

    Args:
        stated: in its ``layer:``; empty where it states none.
        roles: in its ``role:``.
    """
    if stated:
        return BY_NAME[stated]
    if event in _OF_EVENT:
        return _OF_EVENT[event]
    role = next((layer for name, layer in _OF_ROLE.items() if name in roles), None)
    if role is not None:
        return role
    return _OF_ECHO.get(dialect, Layer.NONE) if tone == "echo" else Layer.RESOURCE
