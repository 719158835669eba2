"""Steps that several rules propose.

A step is either code to paste (a command, a setting, a piece of a pod's spec), with a comment after ``   # ``; or a
sentence with a capital and a period. Reports show the former as code.
"""

COMMENT = "   # "
"""Separates code to paste from its comment."""


def is_sentence(step: str) -> bool:
    """Whether a step is a sentence and not code to paste."""
    return step.endswith(".")


CHOOSE_INTERFACE = (
    "NCCL_SOCKET_IFNAME='=<interface>'   # on all ranks; a leading = matches the exact name. "
    "PyTorch: GLOO_SOCKET_IFNAME=<interface>"
)
"""Selects the interface for bootstrap and TCP traffic."""
EFA_CHECK = "fi_info -p efa -t FI_EP_RDM; ls /dev/infiniband   # inside the container: is EFA there?"
EFA_IN_POD = (
    "resources: {limits: {vpc.amazonaws.com/efa: <NICs of the node>, hugepages-2Mi: 5120Mi}}   # EFA: pod spec, of the "
    "container"
)
EFA_RELEASES = "fi_info --version; modinfo efa | grep ^version   # libfabric of the image, driver of the node"
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
