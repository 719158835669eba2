"""Failed CUDA calls, and GPUs that are broken, full, slow or too new."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator

from nccl_inspect.event.base import is_named
from nccl_inspect.event.types import BootstrapInterface, NcclTestResult
from nccl_inspect.judging import cuda, exceptions
from nccl_inspect.judging.check import Effects, Facts, Hit, Notice, value
from nccl_inspect.judging.cuda import AT_START
from nccl_inspect.judging.ends import has_ended, is_pasted, is_proved
from nccl_inspect.judging.evidence import kernel_log
from nccl_inspect.judging.facts import global_ranks, hosts_in, members_named, ranks_concerned, ranks_in
from nccl_inspect.judging.machine_type import gpu_names
from nccl_inspect.judging.statements import error_of, find_text, gpu_fault, list_table, message_of
from nccl_inspect.model.versions import order
from nccl_inspect.util.grouping import group_sets
from nccl_inspect.util.patterns import compile_later
from nccl_inspect.util.text import cut
from nccl_inspect.util.wording import list_words, ranks_word, read_range

_NOT_INITIALIZED, _BUSY, _UNKNOWN, _NO_DEVICE = 3, 46, 999, 100
_NVML = {"Driver/library version mismatch": 803, "Driver Not Loaded": _NO_DEVICE, "Unknown Error": _UNKNOWN}
"""Errors of NVML, with the CUDA error that has the same causes."""
_STATED = {"torch/no-gpus": _NO_DEVICE, "torch/no-gpus-available": _NO_DEVICE, "torch/driver-too-old": 35}
"""PyTorch's own messages."""


def cuda_init_error(facts: Facts) -> Iterator[Hit | Effects]:
    """Find errors of CUDA's initialization; a process that already connects has another fault."""
    program = [*facts.with_role("program-cuda-error"), *facts.notices(*_STATED)]
    survived = [notice for notice in program if exceptions.is_survived(facts, notice)]
    yield Effects(survived)
    found = [(notice, _code(notice)) for notice in cuda.failed_calls(facts)]
    # 'Unknown error' of a call of the program may occur at any time.
    found += [
        (notice, _STATED.get(notice.production) or cuda.find_start_code(error_of(notice), but=_UNKNOWN))
        for notice in program
        if notice not in survived
    ]
    # An error of NVML at WARN stops NCCL (src/misc/nvmlwrap.cc).
    nvml = [notice for notice in facts.notices("nccl/nvml-failed") if notice.level == "WARN"]
    found += [(notice, _NVML.get(str(value(notice, "error")))) for notice in nvml]
    notices = [notice for notice, code in found if code is not None]
    if notices:
        codes = sorted({code for _, code in found if code is not None})
        codes = [code for code in codes if code != _NO_DEVICE] or codes  # "no GPU" follows from the others
        answers = list(map(cuda.find_start_answer, codes))
        named = {
            "causes": "; ".join(cause for cause, _ in answers),
            "steps": [step for _, fix in answers for step in fix],
        }
        error = cut(message_of(notices[0]).strip(), 200)
        yield Hit(notices, {**named, "error": error, "vague": {_BUSY, _UNKNOWN}.issuperset(codes)})


def _code(notice: Notice) -> int | None:
    code, file = cuda.code_of(notice), cuda.file_of(notice)
    is_connecting = "transport" in file or file.endswith(("proxy.cc", "channel.cc"))
    return code if code in AT_START and (code == _NOT_INITIALIZED or not is_connecting) else None


_SHARING = ("NCCL_MULTI_RANK_GPU_ENABLE", "NCCL_HOSTID")
"""With these, several ranks may share a GPU, or host names do not identify hosts."""


def duplicate_gpu(facts: Facts) -> Iterator[Hit]:
    """Find NCCL's own check: up to 2.29 it names the ranks, from 2.30 on it does not."""
    errors = facts.errors_of_rule("duplicate-gpu")
    if not errors:
        yield from _find_in_init_lines(facts)
        return
    pairs = {
        (*sorted((value(notice, "rank"), value(notice, "other_rank"))), value(notice, "bus_id"))
        for notice in errors
        if value(notice, "other_rank") is not None
    }
    words = [f"ranks {one} and {other} on the GPU with bus id {bus}" for one, other, bus in sorted(pairs, key=str)]
    yield Hit(errors, {"pairs": words}, ranks=ranks_concerned(facts, errors, "rank", "other_rank"))


def _find_in_init_lines(facts: Facts) -> Iterator[Hit]:
    """Find init lines with one host and bus id for two ranks, before NCCL itself compares them.

    If NCCL built the communicator, there is no conflict: two machines have the same name.
    """
    if facts.enabled_settings(*_SHARING) or any(order(text) >= (2, 30) for text in facts.job.nccl_versions):
        return  # 2.30 and later distinguish MIG instances and support ranks that share a GPU
    host_of = {rank: host.name for host in facts.job.hosts for rank in host.ranks}
    chosen = [(notice.event, host) for notice in facts.with_event(BootstrapInterface) for host in notice.hosts]
    addresses = group_sets(
        ((host, event.interface), event.address)
        for event, host in chosen
        if isinstance(event, BootstrapInterface) and event.address
    )
    doubled = {host for (host, _), several in addresses.items() if len(several) > 1}  # two machines of one name
    for comm in filter(lambda comm: facts.none_initialized([comm]), facts.job.communicators):
        users = group_sets(
            ((host_of.get(rank), gpu.bus_id), rank)
            for rank in global_ranks(comm, comm.started)
            # Machines of one type have the same bus ids: a host without a name may be several.
            if (gpu := facts.job.gpus.get(rank)) and gpu.bus_id and (is_named(host_of.get(rank)) or comm.nnodes == 1)
        )
        if shared := {key: ranks for key, ranks in users.items() if len(ranks) > 1 and key[0] not in doubled}:
            places = sorted(shared.items(), key=str)
            words = [f"{ranks_word(ranks)} on the GPU with bus id {bus}" for (_, bus), ranks in places]
            yield Hit([], {"shared": words}, set().union(*shared.values()), [host for host, _ in shared], comm.evidence)
            return


def gpu_degraded(facts: Facts) -> Iterator[Hit]:
    """Find what monitors and NCCL's health masks show; it warns of degraded bandwidth since 2.32."""
    if errors := facts.errors_of_rule("gpu-degraded"):
        yield Hit(errors)
    stated = ((notice, str(value(notice, "health"))) for notice in facts.notices("nccl/mnnvl-fabric"))
    masks = [(notice, int(mask, 16)) for notice, mask in stated if mask.startswith("0x")]
    if sick := [(notice, mask) for notice, mask in masks if mask & 3 == 1]:
        faults = dict.fromkeys(fault for _, mask in sick for fault in decode_health(mask))
        yield Hit([notice for notice, _ in sick], {"faults": list(faults), "mask": value(sick[0][0], "health")})
    yield from _find_narrow(facts)


_NARROW = 0.95  # of the bandwidth of the others: rates are rounded


def _find_narrow(facts: Facts) -> Iterator[Hit]:
    """Find GPUs that have less bandwidth to the NVSwitch than the others of their host, if these are the more.

    Ranks that share multi-node NVLink print the GPUs of several systems, by their numbers: which host is which is open.
    """
    rates: defaultdict[str, dict[str, tuple[float, Notice]]] = defaultdict(dict)
    stated = [notice for notice in facts.notices("nccl/topology-paths") if value(notice, "node") == "GPU"]
    ids_of = [str(value(notice, "id")).lower().rpartition("-") for notice in stated]
    is_one_system = len({system for system, _, _ in ids_of}) == 1
    for notice, (_, _, gpu) in zip(stated, ids_of, strict=True) if is_one_system else ():
        to_switch = [rate for node, _, _, rate, kind in value(notice, "paths") if (node, kind) == ("NVS", "NVL")]
        for host in notice.hosts if to_switch else ():
            rates[host][gpu] = float(max(to_switch)), notice
    ids = {rank: gpu.bus_id for rank, gpu in facts.job.gpus.items()}
    ranks_of = {(host.name, ids.get(rank)): rank for host in facts.job.hosts for rank in host.ranks}
    for host, of_host in rates.items():
        usual = max(rate for rate, _ in of_host.values())
        narrow = {gpu: rate for gpu, (rate, _) in of_host.items() if rate < _NARROW * usual}
        if narrow and 2 * len(narrow) < len(of_host):
            ranks = [ranks_of[host, gpu] for gpu in narrow if (host, gpu) in ranks_of]
            named = {"narrow": [f"GPU {gpu}" for gpu in narrow], "host": host, "usual": f"{usual:g}"}
            named["rate"] = f"{min(narrow.values()):g}"
            yield Hit([], named, ranks, [host], [of_host[gpu][1] for gpu in narrow])


def decode_health(mask: int) -> list[str]:
    """Return what a health mask says is wrong; nothing where all is well, or not reported."""
    faults = [words for shift, words in list_table("health").items() if mask >> int(shift) & 3 == 1]
    wrong = list_table("configuration").get(str(mask >> 8 & 15))
    return [*faults, wrong] if wrong else faults


_TEXTS = ("uncorrectable ECC error encountered", "uncorrectable NVLink error detected during the execution")
_CONTAINED = "Invalid access of peer GPU memory over nvlink or a hardware error"
"""cudaErrorContained, since CUDA 12.8: either of the two."""
_LOST = "GPU is lost"  # NVML's error for a GPU that does not respond (src/misc/nvmlwrap.cc)
_OF_GPU = compile_later(r"CUDA|cuda|CUDNN|cuDNN|CUBLAS|cuBLAS|CUFFT|cuFFT|Triton|NVRTC|GPU")


def gpu_hardware_error(facts: Facts) -> Iterator[Hit]:
    """Find CUDA's hardware errors; the kernel's lines may be old, so they need a job that failed."""
    stated = [notice for notice in cuda.failed_calls(facts) if cuda.code_of(notice) in (214, 220, 226)]
    stated += [n for n in facts.notices("torch/cuda-error", "torch/watchdog-terminated") if _text_of(n)]
    lost = [n for n in facts.notices("nccl/nvml-failed") if n.level == "WARN" and value(n, "error") == _LOST]
    stated += lost
    kernel = [*facts.notices("kernel/gpu-lost"), *filter(gpu_fault, facts.notices("kernel/xid"))]
    kernel += facts.with_role("gpu-fault")
    kernel += [n for n in facts.notices("kernel/sxid") if str(value(n, "text")).startswith("Fatal")]
    notices = [*stated, *kernel]
    if not notices:
        if switch := facts.errors_of_rule("gpu-hardware-error"):
            yield Hit(switch, {"switch": message_of(switch[0]).strip()}, ranks=())
        return
    surely = {kernel_log.confidence(facts, notice) for notice in kernel}
    is_proved = not stated and "certain" in surely
    hurt = [error for error in facts.errors(forced_ends=False) if not any(error is line for line in kernel)]
    is_over = facts.job.failed or facts.job.ended_by or hurt or facts.notices("nccl/socket-closed-by-peer")
    # Whether exceptions unrelated to GPUs ended ranks, and the kernel names no process of a rank.
    texts = [trace.last.text for trace in exceptions.exceptions_of(facts).traces if trace.last is not None]
    pids = {str(last.process.pid) for last in facts.job.last_lines}
    is_of_rank = any(str(value(notice, "process")) in pids for notice in kernel)
    is_explained = bool(texts) and not is_of_rank and not any(map(_OF_GPU.search, texts))
    is_unrelated = surely == {"possible"} or is_explained or not is_over
    is_old = not (stated or is_proved) and is_unrelated
    named = {
        "failed": list_words(map(_words, notices), limit=2),
        "lost": lost,
        "stated": stated,
        "old": is_old,
        "sure": is_proved or any(text in error_of(one) for one in stated for text in (*_TEXTS, _LOST)),
        "logged": all(notice.production.startswith("kernel/") for notice in kernel),
    }
    ranks = ranks_in(stated) | kernel_log.ranks_meant(facts, kernel)
    hosts = hosts_in(notices) | kernel_log.hosts_meant(facts, kernel)
    # The calls of CUDA that fail then are its effects; without a finding of their own they would count as a loss.
    failed = [] if is_old else [notice for notice in cuda.failed_calls(facts) if notice not in notices]
    shown = [*notices, *failed]
    yield Hit(shown, named, ranks, hosts, shown)


def _text_of(notice: Notice) -> str:
    return next((text for text in (*_TEXTS, _CONTAINED) if text in error_of(notice)), "")


def _words(notice: Notice) -> str:
    if notice.production == "kernel/xid":
        return f"Xid {value(notice, 'xid')} on {value(notice, 'bus_id')} ({gpu_fault(notice)})"
    return _text_of(notice) or find_text(notice)


def gpu_out_of_memory(facts: Facts) -> Iterator[Hit]:
    """Find CUDA's "out of memory" from NCCL; from PyTorch, which programs catch, if it ended a rank or the job."""
    failures = [failure for failure in cuda.failures(facts) if failure.code == cuda.OUT_OF_MEMORY]
    raised = facts.notices("torch/cuda-error")
    full = [notice for notice in raised if str(value(notice, "error")).startswith((cuda.FULL, cuda.NO_HANDLE))]
    raised = [*facts.notices("torch/cuda-out-of-memory"), *full]
    torch = [notice for notice in raised if has_ended(facts, notice)]
    pasted = [] if torch else [notice for notice in raised if is_pasted(facts, notice)]
    torch = torch or pasted
    notices = [*(failure.notice for failure in failures), *torch]
    sizes = facts.notices("nccl/cuda-allocation-failed", "rccl/rccl-cumem-allocation-failed")
    on_host = [value(notice, "call") == "host alloc" for notice in sizes]
    if not notices:
        if sizes and not cuda.failures(facts):
            yield Hit(sizes, {"without reason": True, "on host": all(on_host)})
        return
    # Helpers that lacked memory which a peer asked for (2.8 to 2.11): any stranger may be that peer.
    helpers = facts.notices("nccl/remote-allocator-failed")
    answering = {process for notice in helpers for process in notice.processes}
    asked = bool(answering) and all(answering.issuperset(notice.processes) for notice in notices)
    files = [str(failure.file or "") for failure in failures]
    named = {
        "on host": not torch and (any(on_host) or all("shm.cc" in file for file in files)),
        "NCCL": failures,
        "file": files[0] if files else "",
        "XLA": facts.notices("frameworks/xla-nccl-failed"),
        "NVLS": any(file.endswith("transport/nvls.cc") for file in files),
        "vague": not failures and not any(cuda.FULL in notice.message for notice in torch),
        "asked by others": asked,
        "harmless": asked and not facts.job.failed,
    }
    named |= {} if failures else _find_excess(torch[0])
    is_sure = failures or any(is_proved(facts, notice) for notice in torch)
    sure = None if is_sure else "possible" if pasted else "likely"
    yield Hit(notices, named, ranks_in(notices), hosts_in(notices), [*notices, *sizes], confidence=sure)


_REQUEST = compile_later(
    r"Tried to allocate ([\d.]+) (.?)i?B.{0,20}? (?:has a total capaci?ty of|\(GPU \d+;) ([\d.]+) (.?)i?B"
)


def _find_excess(notice: Notice) -> dict[str, object]:
    """Return what was asked for and what the GPU has in all, where that is less."""
    if not (match := _REQUEST.search(notice.message)):
        return {}
    both = match.group(1, 2), match.group(3, 4)
    sizes = [float(size) * 1024.0 ** max(" KMGTPE".find(unit), 0) for size, unit in both]
    asked, whole = (f"{size} {unit}iB" for size, unit in both)
    return {"asked": asked, "whole": whole} if sizes[0] > sizes[1] else {}


_FAULT = compile_later(
    r"mismatch|\bdiffer\b|^only \d+/\d+ |^(?:peer-memory import|launch/check|local CUDA setup|topology check) failed|"
    r"^uncorrected volatile errors on|^corrected volatile errors at or above|off median|inactive|^inconsistent|"
    r"^enabled \(DMA remapping\)|ATSCtl disabled|^disabled on"
)
"""A fault or a difference between ranks, not a check that could not be made."""
_DIFFERING = compile_later(r"\brank\(s\) ([0-9,\- ]+) differ")


def nccl_check_failed(facts: Facts) -> Iterator[Hit]:
    """Find results of NCCL_RUN_DIAGNOSTICS and NCCL_RUN_RAS_DIAGNOSTICS (2.31 and later) that name a fault."""
    results = facts.notices("nccl/diagnostics-result", "nccl/diagnostics-xid", "nccl/fabric-degraded")
    results = [notice for notice in results if value(notice, "status") != "OK"]
    is_check = "nccl/diagnostics-result"
    faults = [one for one in results if one.production != is_check or _FAULT.search(str(value(one, "text")))]
    if faults:
        words = (fault.message.rpartition("[INFO]")[2].strip() for fault in faults)
        differing = [(fault, match[1]) for fault in faults if (match := _DIFFERING.search(str(value(fault, "text"))))]
        parts = [(fault, read_range(part)) for fault, text in differing for part in text.replace(" ", "").split(",")]
        ranks = {rank for fault, part in parts for rank in members_named(facts, fault, (part or ())[: 1 << 17])}
        yield Hit(faults, {"found": list_words(words, limit=2)}, ranks=ranks, hosts=())


def nccl_too_old(facts: Facts) -> Iterator[Hit]:
    """Find kernels that the GPU rejects, and links that a release overlooks; an old release that works is fine."""
    crashed = [call for call in cuda.failed_calls(facts, "enqueue.cc", "init.cc") if cuda.code_of(call) == 1]
    # Kernels need more shared memory than the GPU has; 2.25.1 prints it at INFO and fails at launch.
    small = facts.notices("nccl/shared-memory-exceeded", "nccl/shared-memory-too-small")
    refused = [call for call in cuda.failed_calls(facts) if cuda.code_of(call) in (98, 209)]
    refused += [notice for notice in small if notice.level == "WARN" or crashed]
    platform = {facts.platform.gpu} if facts.platform and facts.platform.gpu else set()
    gpus = gpu_names(facts.job) or platform
    generations = [(*key.partition(" ")[::2], names) for key, names in list_table("generation").items()]
    known = [(order(one), words, one) for one, words, names in generations for gpu in gpus if re.search(names, gpu)]
    # 2.15.1 is the first that reads all 18 NVLinks of a Hopper GPU; earlier ones read 12 (src/graph/xml.cc), so that
    # one end of a link may be missing.
    limit, generation, first = max(known, default=(order("2.15.1"), "", ""))
    overlooked = facts.notices("nccl/topology-reverse-path")
    releases = [order(text) for text in facts.job.nccl_versions if "inferred" not in text]  # which are ranges
    is_old = any(() < release < limit for release in releases)
    version = facts.notices("nccl/nccl-version")[:1]
    named = {
        "release": ", ".join(text for text in facts.job.nccl_versions if " " not in text.removesuffix(" (inferred)")),
        "gpu": ", ".join(sorted(gpus)),
        "needed": "; ".join(f"{words} {release}" for release, words, _ in generations),
        "likely": not refused,
    }
    if refused:
        yield Hit(refused, named, evidence=[*refused, *version])
    elif small and not facts.with_event(NcclTestResult):
        yield Hit(small, named | {"too small": True})
    elif is_old and (overlooked or (generation and crashed)):
        old = [*(crashed if generation else ()), *overlooked]
        yield Hit(old, named, evidence=[*old, *version])
    elif crashed and not generation:
        yield Hit(named={"unknown model": True})
    elif generation and is_old and facts.job.failed and not facts.job.paths:
        errors, listed = facts.errors(forced_ends=False), facts.with_role("rank-list")
        yield Hit(
            named=named | {"generation": generation, "first": first}, evidence=[*version, *listed[:1], *errors[:2]]
        )
