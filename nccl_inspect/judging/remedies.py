"""Steps that several rules propose, and the command that captures what a log lacks.

A step is either code to paste (a command, a setting, a piece of a pod's spec), with a comment after ``   # ``; or a
sentence with a capital and a period. Reports show the former as code.
"""

from __future__ import annotations

import re
import shlex

from nccl_inspect.model.finding import Finding
from nccl_inspect.model.job import Job

COMMENT = "   # "
"""Separates code to paste from its comment."""


_LATER_STEPS = 3
"""The first of this many steps without a placeholder comes first; later steps are less likely to help."""
_OPEN_PLACEHOLDER = re.compile(r"<(?!(?:stdin|bytes|stream)>:\d)[A-Za-z][^<>]*>")
"""A placeholder; ``<stdin>:7`` is a line of a log that has no name."""


def order_steps(findings: list[Finding], most: int) -> list[Finding]:
    """Return the findings, each with the best step first: that of a nested cause, else one to type as it is."""
    ordered = []
    for finding in findings:
        nests = finding.root and not (finding.confidence == "certain" and finding.fatal)
        causes = [other for other in findings if nests and other.rule in finding.because and other.root]
        steps = [
            _first_step(other.fix) for other in (*causes, finding) if other.confidence != "possible" or other is finding
        ]
        first = [step for step in steps if step][:1]
        ordered.append(finding.with_fields(fix=list(dict.fromkeys([*first, *finding.fix]))[:most]))
    return ordered


def _first_step(steps: list[str]) -> str:
    return next((step for step in steps[:_LATER_STEPS] if not _OPEN_PLACEHOLDER.search(step)), next(iter(steps), ""))


def is_sentence(step: str) -> bool:
    """Return whether a step is a sentence and not code to paste."""
    return step.endswith(".")


CHOOSE_INTERFACE = (
    "NCCL_SOCKET_IFNAME='=<interface>'   # on all ranks; a leading = matches the exact name. "
    "PyTorch: GLOO_SOCKET_IFNAME=<interface>"
)
"""Selects the interface for bootstrap and TCP traffic."""
CLOSE_TO_GPU = "Keep GPU and NIC close: whole nodes for pods, or topologyManagerPolicy single-numa-node in the kubelet."
EFA_CHECK = "fi_info -p efa -t FI_EP_RDM; ls /dev/infiniband   # inside the container: is EFA there?"
EFA_IN_POD = (
    "resources: {limits: {vpc.amazonaws.com/efa: <NICs of the node>, hugepages-2Mi: 5120Mi}}   # EFA: pod spec, of the "
    "container"
)
EFA_RELEASES = "fi_info --version; modinfo efa | grep ^version   # libfabric of the image, driver of the node"
EFA_INTERFACES = (
    "aws ec2 describe-instances --instance-ids <id> --query "
    "'Reservations[].Instances[].NetworkInterfaces[].InterfaceType'   # how many interfaces are efa?"
)
SLINGSHOT_PLUGIN = (
    "Use aws-ofi-nccl built for the libfabric of the site, with the provider cxi (often a module of the center); a "
    "container needs both, and /dev/cxi*, from the host."
)
SLINGSHOT_HERE = "fi_info -p cxi; ls /dev/cxi*   # inside the container: does its libfabric list the NICs?"
LIBFABRIC_SAYS = "FI_LOG_LEVEL=warn   # on all ranks: libfabric then logs what fails"
LOCKED_MEMORY_IN_POD = "securityContext: {capabilities: {add: [IPC_LOCK]}}   # pod spec, of the container"
RDMA_IN_DOCKER = "--device=/dev/infiniband --cap-add=IPC_LOCK --ulimit memlock=-1   # any RDMA: options of docker run"
RDMA_IN_POD = "resources: {limits: {rdma/<resource>: 1}}   # InfiniBand, RoCE: pod spec, of the container"
GPUS_IN_POD = "resources: {limits: {nvidia.com/gpu: <GPUs of the node>}}   # pod spec: one pod with all GPUs of a node"
PCIE_ISOLATION = (
    "sudo lspci -vvv | grep ACSCtl   # SrcValid+ means on. Bare metal: disable ACS and IOMMU (or iommu=pt); virtual "
    "machines need ATS"
)
STACKS = "py-spy dump --pid <pid>   # on every rank: are all in the same collective?"
NOTHING = "Nothing to fix."
BEGAN_ANEW = "all processes began anew, and worked from then on"
LOST_ATTEMPT = "an attempt of the job is lost"
SUCCEEDED = "the program had reported success by then"
BAD_END = "the program did not end in order, which may spoil what it writes at its end"
REACH_BOOTSTRAP = "Open all TCP ports of the bootstrap interface between all hosts (NetworkPolicy, firewall)."
EACH_STEP = "NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,ENV,BOOTSTRAP,NET   # on all ranks: shows the last step of each"
WHERE_NOW = "py-spy dump --pid <pid>   # on {who}: where is it now?"
RECORD = "TORCH_NCCL_TRACE_BUFFER_SIZE=2000 TORCH_NCCL_DUMP_ON_TIMEOUT=1   # next time: the calls of all ranks"
FLIGHT_RECORDER = (
    "TORCH_NCCL_TRACE_BUFFER_SIZE=2000 TORCH_NCCL_DUMP_ON_TIMEOUT=1   # the flight recorder: the last calls of every "
    "rank"
)
WATCHDOG_ENDS_IT = "ranks wait for each other; PyTorch's watchdog ends the job when the call times out"
ONE_JOB = "Run one job per address: give each launch its own MASTER_PORT, rdzv id or file:// store."
LEFT_PROCESS = "ps aux | grep <script>   # is a process left from the last launch?"
RANK_NUMBERS = "Give each rank its own RANK and the same WORLD_SIZE; start one torchrun on each node."
RELEASES = "python -c 'import torch; print(torch.cuda.nccl.version())'   # on every node: is it the same everywhere?"
COPIES = "ldconfig -p | grep libnccl.so   # on every node: is there a second copy?"
DO_THEY_FIT = (
    "«not AMD?nvidia-smi; python -c 'import torch; print(torch.version.cuda)'   # do driver and CUDA match?»"
    "«AMD?rocm-smi; rocminfo | grep gfx; ls -l /dev/kfd /dev/dri   # in the container: all GPUs, one release?»"
)
IS_BROKEN = (
    "«not AMD?dmesg -T | grep -i xid; nvidia-smi -q | grep -iE 'retired|remap|ecc errors' -A3   # is a GPU broken?»"
    "«AMD?dmesg -T | grep -i amdgpu; rocm-smi --showrasinfo   # is a GPU broken?»"
)
WHICH_KERNEL = (
    "«not AMD?CUDA_LAUNCH_BLOCKING=1   # the traceback then names the kernel; compute-sanitizer shows more»"
    "«AMD?AMD_SERIALIZE_KERNEL=3   # the traceback then names the kernel»"
)
ALL_GPUS = "NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility   # of the container"
VISIBLE_GPUS = "nvidia-smi -L; echo $CUDA_VISIBLE_DEVICES   # inside the container: which GPUs are visible?"
WHO_HAS_GPU_MEMORY = (
    "nvidia-smi --query-compute-apps=pid,used_memory --format=csv   # does another process hold the memory?"
)
DEVICES_HERE = (
    "ls /sys/class/pci_bus /sys/devices/system/node; nvidia-smi -L   # in the container: are all devices there?"
)
LINKS_HERE = "nvidia-smi nvlink -s; nvidia-smi topo -m   # is a link down, or seen from one end only?"
LINK_ERRORS = "dmesg -T | grep -iE 'xid|sxid'; systemctl status nvidia-fabricmanager   # NVLink and NVSwitch errors"
INTERFACES = "ip -br addr   # on that host, inside the container: which interfaces have an address?"


_SUBSYSTEMS = ("INIT", "ENV", "BOOTSTRAP", "NET", "GRAPH", "P2P", "SHM", "COLL", "TUNING")
_LOGS = "/logs"


def capture_command(job: Job) -> str | None:
    """Return the command that answers the open questions; None if there are none, or no log would answer them.

    ``<the job>`` stands for the launch command, ``NAME`` for the machine type.
    """
    needs = [entry.lacks for entry in job.not_judged]
    asked = {name for need in needs for name in need.subsystems}
    everyone = any(need.all_ranks for need in needs)
    topology = any(need.topology for need in needs)
    platform = any(need.platform for need in needs)
    own = job.sources[0].name if len(job.sources) == 1 else ""
    log = shlex.quote(own) if own and not own.startswith("<") else "<the log>"
    steps = []
    if asked or everyone:  # the job again, with a fuller log
        log = _LOGS if everyone else "job.log"
        more = sorted(asked.difference(_SUBSYSTEMS))
        names = [*(name for name in _SUBSYSTEMS if name in {"INIT", "ENV", "NET", *asked}), *more]
        file = f" NCCL_DEBUG_FILE={_LOGS}/nccl.%h.%p.log" if everyone else ""
        into = "" if everyone else " 2>&1 | tee job.log"
        steps.append(f"NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS={','.join(names)}{file} <the job>{into}")
    if topology:
        steps += ["nvidia-smi topo -m > topo.txt", f"nccl-inspect summarize {log} --topology topo.txt"]
    elif steps or platform:
        steps.append(f"nccl-inspect summarize {log}" + (" --platform NAME" if platform else ""))
    return "; ".join(steps) or None
