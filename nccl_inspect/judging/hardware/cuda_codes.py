"""CUDA's errors: their numbers, what they mean, and what helps where the error is the cause."""

from __future__ import annotations

from typing import NamedTuple

CUDA_CODES = {
    "invalid argument": 1,
    "out of memory": 2,
    "initialization error": 3,
    "driver shutting down": 4,
    "invalid configuration argument": 9,
    "invalid device symbol": 13,
    "invalid host pointer": 16,
    "invalid device pointer": 17,
    "CUDA driver is a stub library": 34,
    "CUDA driver version is insufficient for CUDA runtime version": 35,
    "API call is not supported in the installed CUDA driver": 36,
    "CUDA-capable device(s) is/are busy or unavailable": 46,
    "all CUDA-capable devices are busy or unavailable": 46,
    "incompatible driver context": 49,
    "unspecified launch failure in prior launch": 53,
    "invalid device function": 98,
    "no CUDA-capable device is detected": 100,
    "invalid device ordinal": 101,
    "device doesn't have valid Grid license": 102,
    "integrity checks failed": 103,
    "startup failure in cuda runtime": 127,
    "device kernel image is invalid": 200,
    "invalid device context": 201,
    "no kernel image is available for execution on the device": 209,
    "uncorrectable ECC error encountered": 214,
    "limit is not supported on this architecture": 215,
    "exclusive-thread device already in use by a different thread": 216,
    "peer access is not supported between these two devices": 217,
    "a PTX JIT compilation failed": 218,
    "uncorrectable NVLink error detected during the execution": 220,
    "PTX JIT compiler library not found": 221,
    "the provided PTX was compiled with an unsupported toolchain.": 222,
    "PTX JIT compilation was disabled": 223,
    "Invalid access of peer GPU memory over nvlink or a hardware error": 226,
    "Loader version is insufficient for fatbin": 227,
    "file not found": 301,
    "shared object symbol not found": 302,
    "shared object initialization failed": 303,
    "OS call failed or operation not supported on this OS": 304,
    "invalid resource handle": 400,
    "the operation cannot be performed in the present state": 401,
    "named symbol not found": 500,
    "device not ready": 600,
    "an illegal memory access was encountered": 700,
    "too many resources requested for launch": 701,
    "the launch timed out and was terminated": 702,
    "peer access is already enabled": 704,
    "peer access has not been enabled": 705,
    "cannot set while device is active in this process": 708,
    "context is destroyed": 709,
    "device-side assert triggered": 710,
    "peer mapping resources exhausted": 711,
    "part or all of the requested memory range is already mapped": 712,
    "pointer does not correspond to a registered memory region": 713,
    "hardware stack error": 714,
    "an illegal instruction was encountered": 715,
    "misaligned address": 716,
    "operation not supported on global/shared address space": 717,
    "invalid program counter": 718,
    "unspecified launch failure": 719,
    "too many blocks in cooperative launch": 720,
    "operation not permitted": 800,
    "operation not supported": 801,
    "system not yet initialized": 802,
    "system has unsupported display driver / cuda driver combination": 803,
    "forward compatibility was attempted on non supported HW": 804,
    "MPS client failed to connect to the MPS control daemon or the MPS server": 805,
    "the remote procedural call between the MPS server and the MPS client failed": 806,
    "MPS server is not ready to accept new MPS client requests": 807,
    "the hardware resources required to create MPS client have been exhausted": 808,
    "the hardware resources required to support device connections have been exhausted": 809,
    "the MPS client has been terminated by the server": 810,
    "operation not permitted when stream is capturing": 900,
    "operation failed due to a previous error during capture": 901,
    "operation would result in a merge of separate capture sequences": 902,
    "capture was not ended in the same stream as it began": 903,
    "capturing stream has unjoined work": 904,
    "dependency created on uncaptured work in another stream": 905,
    "operation would make the legacy stream depend on a capturing blocking stream": 906,
    "operation not permitted on an event last recorded in a capturing stream": 907,
    "attempt to terminate a thread-local capture sequence from another thread": 908,
    "an async error has occured in external entity outside of CUDA": 911,
    "a kernel launch error has occurred due to cluster misconfiguration": 912,
    "the function handle is not loaded when calling an API that requires a loaded function": 913,
    "GPU fabric is not ready within the probe wait budget; application may retry "
    "(see CUDA_FABRIC_INIT_TIMEOUT_MS)": 919,
    "unknown error": 999,
}
"""What cudaGetErrorString says (CUDA 11.8 to 13): calls of the CUDA runtime print the text only, those of the driver
also the number. Up to CUDA 10.0 many had other numbers under the same text, so the text comes first."""
KERNEL_ERRORS = {
    53: "launch failure",
    700: "illegal address",
    702: "time-out of a launch",
    710: "device-side assert",
    714: "stack error",
    715: "illegal instruction",
    716: "misaligned address",
    717: "wrong address space",
    718: "invalid program counter",
    719: "launch failure",
}
"""Errors of a kernel: whatever calls CUDA next reports them."""
MEANINGS = {
    1: "an argument that this driver or GPU does not take",
    9: "a launch that this GPU does not take: blocks or shared memory beyond its limits",
    13: "a symbol that is not on this GPU: the library was built for others",
    16: "a host pointer that CUDA does not know",
    17: "a pointer that is not to memory of this GPU: freed, or of another one",
    49: "the context of this process was made by an older interface of CUDA",
    101: "a GPU that this process cannot see",
    103: "the driver does not trust its own files: install it again",
    127: "CUDA could not start in this process: no memory, a half-installed driver, or a limit of the container",
    200: "the code in the library does not fit this GPU or driver, or the file is damaged",
    201: "the process has no valid CUDA context: it was destroyed, or the process is a fork of one that used CUDA",
    215: "a limit that this GPU does not have",
    304: "an operating system call was refused: a sandbox, missing capabilities or another name space",
    400: "a handle that is not valid in this process",
    401: "a call at a time at which the driver does not allow it",
    500: "a kernel that is not in this library: it was built for other GPUs, or two NCCL libraries are mixed",
    600: "work that is not finished yet was taken for an error",
    701: "the kernel needs more registers or shared memory than this GPU has: built for another one, or for debugging",
    704: "P2P between two GPUs was switched on twice: the program did it before NCCL and left the error standing. "
    "Harmless by itself, CUDA reports it at the next call",
    705: "P2P between two GPUs was never switched on, or was switched off by the program",
    708: "a setting that must come before the first use of the GPU",
    709: "the CUDA context was destroyed while NCCL still used it: cudaDeviceReset, or the end of the process",
    712: "host memory was registered before",
    713: "host memory that is not registered",
    720: "more blocks than fit on this GPU at once: other programs share it, or MPS or MIG give a part of it",
    800: "not permitted: missing rights or capabilities in the container",
    801: "not supported by this GPU, driver or virtual machine",
    911: "something outside of CUDA failed, as a NIC that writes into a GPU",
    912: "a launch with clusters that this GPU does not take",
    913: "a kernel that was not loaded",
    999: "an error that the driver has no number for: mostly a GPU that is lost (Xid), or a driver in a bad state",
}


TRIALS: dict[int | None, tuple[str, ...]] = {
    801: (
        "NCCL_CUMEM_ENABLE=0   # a test: if it runs then, it is cuMem memory, as with some vGPUs, old drivers",
        "NCCL_NVLS_ENABLE=0   # a test: if it runs then, it is multicast of the NVSwitch",
    ),
}
"""Settings that switch off what may not be supported."""


class Answer(NamedTuple):
    """An error whose text is the cause, whatever call gives it: no broken GPU need be looked for."""

    cause: str
    fix: tuple[str, ...]


IMPACT = "the rank fails, and with it the job; the others wait for it or lose their connections"
DO_THEY_FIT = "nvidia-smi; python -c 'import torch; print(torch.version.cuda)'   # do driver and CUDA fit?"
_COMPAT = "ldconfig -p | grep libcuda; echo $LD_LIBRARY_PATH   # in the container: is cuda/compat found first?"
_NEWER_DRIVER = ("Install a newer driver, or take an image with an older CUDA.", DO_THEY_FIT)
_MPS = (
    "ps aux | grep nvidia-cuda-mps; cat /var/log/nvidia-mps/*.log   # on the host: does the daemon run?",
    "echo quit | nvidia-cuda-mps-control; nvidia-cuda-mps-control -d   # start it anew, as the user of the job",
    "env | grep CUDA_MPS   # in the container: CUDA_MPS_PIPE_DIRECTORY of the daemon; unset: no MPS",
)
ANSWERS = {
    34: Answer(
        "the process loaded the stub of libcuda.so, which is there for linking only, and not the driver's library",
        (
            "ldconfig -p | grep libcuda; echo $LD_LIBRARY_PATH   # take the folder 'stubs' off the path",
            "NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility   # of the container",
        ),
    ),
    36: Answer(
        "the driver is too old: it does not know a call that NCCL or the framework makes",
        _NEWER_DRIVER,
    ),
    46: Answer(
        "the GPU takes no other process: most often it is in exclusive compute mode and another process has it (two "
        "ranks on one GPU, or what is left of an earlier job); else MIG without an instance, or a GPU in a bad state",
        (
            "nvidia-smi --query-gpu=index,compute_mode,mig.mode.current --format=csv   # Exclusive_Process?",
            "nvidia-smi --query-compute-apps=pid,name,gpu_uuid --format=csv   # on the host: who has it?",
            "sudo nvidia-smi -c DEFAULT   # where it is Exclusive_Process and several processes are to share it",
        ),
    ),
    102: Answer(
        "the virtual GPU has no valid licence, without which CUDA does not run on it",
        ("nvidia-smi -q | grep -i -A2 license; systemctl status nvidia-gridd   # in the virtual machine: licensed?",),
    ),
    217: Answer(
        "P2P cannot work between these two GPUs: the driver has no peer access for this pair (kind of GPU, PCIe "
        "topology, virtual machine), though NCCL took that way",
        (
            "nvidia-smi topo -p2p r   # which pairs have peer access? OK, CNS (chipset), GNS (GPU), NS",
            "NCCL_P2P_DISABLE=1   # as a test: it runs then, by shared memory",
        ),
    ),
    222: Answer(
        "the driver is too old for the code in the library: it must be of the same CUDA release or a later one",
        _NEWER_DRIVER,
    ),
    218: Answer(
        "the library has no code for this GPU, and what it has could not be compiled for it: the release is older than "
        "the GPU, or the driver too old for it",
        ("pip install -U nvidia-nccl-cu12   # or -cu13, a newer PyTorch wheel, a newer image", DO_THEY_FIT),
    ),
    221: Answer(
        "the library has no code for this GPU, and the driver's compiler is not in the container",
        (
            "NVIDIA_DRIVER_CAPABILITIES=compute,utility   # of the container: mounts libnvidia-ptxjitcompiler.so",
            "pip install -U nvidia-nccl-cu12   # or -cu13: a release that is built for this GPU",
        ),
    ),
    223: Answer(
        "the library has no code for this GPU, and CUDA_DISABLE_PTX_JIT forbids to compile it",
        (
            "unset CUDA_DISABLE_PTX_JIT",
            "pip install -U nvidia-nccl-cu12   # or -cu13: a release that is built for this GPU",
        ),
    ),
    804: Answer(
        "a cuda-compat package is used on a GPU that does not support it: that is for data centre GPUs",
        (
            _COMPAT,
            "Take the compat folder off LD_LIBRARY_PATH (or remove the package cuda-compat-*) in the image, and use a "
            "driver that is new enough by itself, or an image with an older CUDA.",
        ),
    ),
}
ANSWERS[216] = ANSWERS[46]
ANSWERS[227] = ANSWERS[222]
ANSWERS |= dict.fromkeys((805, 806, 807), Answer("the MPS service of the host does not run or does not answer", _MPS))
ANSWERS |= dict.fromkeys(
    (808, 809),
    Answer("the MPS service of the host has as many processes as it can serve: too many ranks on a GPU", _MPS),
)
ANSWERS[810] = Answer(
    "the MPS service ended this process: another process on the same GPU failed, or an administrator ended it", _MPS
)
ANSWERS |= dict.fromkeys(
    range(900, 909),
    Answer(
        "while a CUDA graph was captured, a call was made that may not stand in one, mostly by another thread of the "
        "process (PyTorch's watchdog, a data loader): a capture in global mode forbids these, too",
        (
            'torch.cuda.graph(graph, capture_error_mode="thread_local")   # then only the own thread counts',
            "Let no other thread use CUDA while a graph is captured; first run once without the graph, so that NCCL "
            "has its communicators and buffers.",
        ),
    ),
)
AT_START = frozenset((3, 34, 35, 46, 100, 101, 102, 127, 216, *range(803, 810), 999))
"""Errors that the start of CUDA gives; a process that already connects has CUDA, and another fault."""
