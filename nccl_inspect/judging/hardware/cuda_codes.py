"""CUDA's errors: numbers, meanings, and fixes for errors that are the cause themselves."""

from __future__ import annotations

from nccl_inspect.util.records import Frozen, frozen

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
"""Texts of cudaGetErrorString (CUDA 11.8 to 13): runtime calls print only the text, driver calls also the number. Up
to CUDA 10.0 many texts had other numbers, so the text takes precedence."""
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
"""Errors of a kernel: the next CUDA call reports them, whoever makes it."""
MEANINGS = {
    1: "an argument that this driver or GPU does not accept",
    9: "a launch that this GPU does not support: blocks or shared memory beyond its limits",
    13: "a symbol that does not exist for this GPU: the library was built for others",
    16: "a host pointer unknown to CUDA",
    17: "a pointer outside this GPU's memory: freed, or of another GPU",
    49: "the context of this process was created by an older CUDA API",
    101: "a GPU that this process cannot see",
    103: "the driver failed its integrity check: reinstall it",
    127: "CUDA could not start in this process: no memory, an incomplete driver installation, or a limit of the "
    "container",
    200: "the code in the library does not match this GPU or driver, or the file is damaged",
    201: "the process has no valid CUDA context: it was destroyed, or the process is a fork of one that used CUDA",
    215: "a limit that this GPU does not support",
    304: "an operating system call was refused: a sandbox, missing capabilities or another namespace",
    400: "a handle that is not valid in this process",
    401: "a call that the driver does not allow in its present state",
    500: "a kernel that is not in this library: it was built for other GPUs, or two NCCL libraries are mixed",
    600: "unfinished work was treated as an error",
    701: "the kernel needs more registers or shared memory than this GPU has: built for another GPU, or for debugging",
    704: "P2P between two GPUs was enabled twice: the program did it before NCCL and did not clear the error. "
    "Harmless, but CUDA reports it at the next call",
    705: "P2P between two GPUs was never enabled, or was disabled by the program",
    708: "a setting that must precede the first use of the GPU",
    709: "the CUDA context was destroyed while NCCL still used it: cudaDeviceReset, or the end of the process",
    712: "host memory was already registered",
    713: "host memory that is not registered",
    720: "more blocks than fit on this GPU at once: other programs share it, or MPS or MIG provide only a part of it",
    800: "not permitted: missing rights or capabilities in the container",
    801: "not supported by this GPU, driver or virtual machine",
    911: "something outside of CUDA failed, such as a NIC that writes to a GPU",
    912: "a launch with clusters that this GPU does not support",
    913: "a kernel that was not loaded",
    999: "an error without a number in the driver: usually a lost GPU (Xid), or a driver in a bad state",
}


TRIALS: dict[int | None, tuple[str, ...]] = {
    801: (
        "NCCL_CUMEM_ENABLE=0   # as a test: if the job then runs, cuMem memory is at fault, as with some vGPUs and "
        "old drivers",
        "NCCL_NVLS_ENABLE=0   # as a test: if the job then runs, NVSwitch multicast is at fault",
    ),
}
"""Settings that disable features that may not be supported."""


@frozen
class Answer(Frozen):
    """An error whose text is the cause, whatever call returns it: the GPU is not broken."""

    cause: str
    fix: tuple[str, ...]


DO_THEY_FIT = "nvidia-smi; python -c 'import torch; print(torch.version.cuda)'   # do driver and CUDA match?"
_COMPAT = "ldconfig -p | grep libcuda; echo $LD_LIBRARY_PATH   # in the container: is cuda/compat found first?"
_NEWER_DRIVER = ("Install a newer driver, or take an image with an older CUDA.", DO_THEY_FIT)
_MPS = (
    "ps aux | grep nvidia-cuda-mps; cat /var/log/nvidia-mps/*.log   # on the host: does the daemon run?",
    "echo quit | nvidia-cuda-mps-control; nvidia-cuda-mps-control -d   # restart it as the user of the job",
    "env | grep CUDA_MPS   # in the container: CUDA_MPS_PIPE_DIRECTORY of the daemon; unset: no MPS",
)
ANSWERS = {
    34: Answer(
        "the process loaded the stub of libcuda.so, which is only for linking, instead of the driver's library",
        (
            "ldconfig -p | grep libcuda; echo $LD_LIBRARY_PATH   # remove the folder 'stubs' from the path",
            "NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility   # of the container",
        ),
    ),
    36: Answer(
        "the driver is too old: it lacks a call that NCCL or the framework makes",
        _NEWER_DRIVER,
    ),
    46: Answer(
        "the GPU accepts no other process: usually it is in exclusive compute mode and another process uses it (two "
        "ranks on one GPU, or a leftover of an earlier job); else MIG without an instance, or a GPU in a bad state",
        (
            "nvidia-smi --query-gpu=index,compute_mode,mig.mode.current --format=csv   # Exclusive_Process?",
            "nvidia-smi --query-compute-apps=pid,name,gpu_uuid --format=csv   # on the host: who has it?",
            "sudo nvidia-smi -c DEFAULT   # if it is Exclusive_Process and several processes must share it",
        ),
    ),
    102: Answer(
        "the virtual GPU has no valid licence, without which CUDA does not run on it",
        ("nvidia-smi -q | grep -i -A2 license; systemctl status nvidia-gridd   # in the virtual machine: licensed?",),
    ),
    217: Answer(
        "P2P cannot work between these two GPUs: the driver has no peer access for this pair (GPU model, PCIe "
        "topology, virtual machine), though NCCL selected P2P",
        (
            "nvidia-smi topo -p2p r   # which pairs have peer access? OK, CNS (chipset), GNS (GPU), NS",
            "NCCL_P2P_DISABLE=1   # as a test: the job then runs over shared memory",
        ),
    ),
    222: Answer(
        "the driver is too old for the code in the library: it must support the same CUDA release or a later one",
        _NEWER_DRIVER,
    ),
    218: Answer(
        "the library has no code for this GPU, and its PTX could not be compiled for it: the release is older than the "
        "GPU, or the driver too old for it",
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
        "the library has no code for this GPU, and CUDA_DISABLE_PTX_JIT prevents compiling it",
        (
            "unset CUDA_DISABLE_PTX_JIT",
            "pip install -U nvidia-nccl-cu12   # or -cu13: a release that is built for this GPU",
        ),
    ),
    804: Answer(
        "a cuda-compat package is used on a GPU that does not support it: only data center GPUs do",
        (
            _COMPAT,
            "Remove the compat folder from LD_LIBRARY_PATH (or the package cuda-compat-*) in the image, and use a "
            "driver that is new enough without it, or an image with an older CUDA.",
        ),
    ),
}
ANSWERS[216] = ANSWERS[46]
ANSWERS[227] = ANSWERS[222]
ANSWERS |= dict.fromkeys(
    (805, 806, 807), Answer("the MPS service of the host is not running or does not respond", _MPS)
)
ANSWERS |= dict.fromkeys(
    (808, 809),
    Answer("the MPS service of the host has reached its limit of processes: too many ranks on a GPU", _MPS),
)
ANSWERS[810] = Answer(
    "the MPS service terminated this process: another process on the same GPU failed, or an administrator did it", _MPS
)
ANSWERS |= dict.fromkeys(
    range(900, 909),
    Answer(
        "during the capture of a CUDA graph a call was made that a capture does not allow, usually by another thread "
        "of the process (PyTorch's watchdog, a data loader): in global mode, calls of other threads count as well",
        (
            'torch.cuda.graph(graph, capture_error_mode="thread_local")   # then only calls of this thread count',
            "Keep other threads from using CUDA during the capture; first run once without the graph, so that NCCL "
            "has its communicators and buffers.",
        ),
    ),
)
AT_START = frozenset((3, 34, 35, 46, 100, 101, 102, 127, 216, *range(803, 810), 999))
"""Errors from starting CUDA; a process that already connects has CUDA, and another fault."""

_VISIBLE = "nvidia-smi -L; echo $CUDA_VISIBLE_DEVICES   # inside the container: which GPUs are visible?"
START_ANSWERS = {code: ANSWERS[code] for code in AT_START & ANSWERS.keys()} | {
    3: Answer(
        "CUDA was used before a fork: a child process cannot use it",
        ('torch.multiprocessing.set_start_method("spawn")   # and no CUDA call before the workers start',),
    ),
    35: Answer(
        "the driver is older than the CUDA release that NCCL or the framework was built for",
        ("Install a newer driver, or use an image with an older CUDA; data center GPUs: the cuda-compat package.",),
    ),
    100: Answer(
        "the process sees no GPU: the container has none, CUDA_VISIBLE_DEVICES is empty, or a GPU failed",
        (
            "--gpus all   # option of docker run",
            "resources: {limits: {nvidia.com/gpu: <GPUs of the node>}}   # pod spec",
            _VISIBLE,
        ),
    ),
    101: Answer(
        "the program uses a GPU that this process does not see: fewer GPUs than ranks on the host, a local "
        "rank that does not match CUDA_VISIBLE_DEVICES, or a container with only some of the GPUs",
        (
            "torchrun --nproc_per_node=gpu <script>   # as many processes as GPUs",
            'torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))   # in the program, before the first use of CUDA',
            _VISIBLE,
        ),
    ),
    127: Answer(
        "CUDA could not start in this process: no memory, a half-installed driver, or a limit of the container",
        (
            "nvidia-smi; free -m; ulimit -a   # inside the container: does the driver answer, is there memory?",
            _VISIBLE,
        ),
    ),
    803: Answer(
        "the driver's kernel module and its libraries have different versions",
        ("After a driver upgrade, reboot or reload its modules; remove any other libcuda.so from the image.",),
    ),
    999: Answer(
        "the driver failed: a lost GPU (Xid), a broken kernel module (nvidia_uvm), or a reset is needed; or "
        "the container lost its access to the GPUs (a systemctl daemon-reload on the host can revoke it)",
        (
            "nvidia-smi -L   # in the container and on the host: if it fails only in the container, restart that",
            "dmesg -T | grep -i xid; nvidia-smi   # what does the driver report?",
            "modprobe nvidia_uvm   # is the module loaded? If it is, reset the GPU (nvidia-smi -r) or reboot",
        ),
    ),
}
"""Errors while CUDA starts."""
