"""The program cannot find NCCL, or finds one that it was not built for."""

from nccl_inspect.judging.engine import Effects, Facts, Results, Rule, first_evidence
from nccl_inspect.judging.hardware.cuda import Answer
from nccl_inspect.judging.process_ends import exceptions

RULE = Rule(
    name="nccl-lib-missing",
    category="environment",
    title="The program cannot find NCCL, or finds one that it was not built for",
    local=True,
)
_WHERE = "ldconfig -p | grep libnccl; pip list | grep nvidia-nccl   # in the container: which ones are installed?"
_OTHER = Answer("see the message", (_WHERE,))
_ANSWERS = {
    "frameworks/nccl-not-built-in": Answer(
        "PyTorch was built without NCCL: a build for CPUs, or for Windows or macOS, which NCCL does not support",
        (
            "python -c 'import torch; print(torch.version.cuda, torch.distributed.is_nccl_available())'   # has it?",
            "Install a build of PyTorch with CUDA, on Linux (on Windows: in WSL2).",
            'torch.distributed.init_process_group(backend="gloo")   # for jobs without GPUs',
        ),
    ),
    "frameworks/nccl-symbol-undefined": Answer(
        "the program loads an older libnccl than it was built with: one on LD_LIBRARY_PATH or in the system is found "
        "first, or the package with its own has another version",
        (
            _WHERE,
            "echo $LD_LIBRARY_PATH $LD_PRELOAD $VLLM_NCCL_SO_PATH   # does one of them point to another libnccl?",
            "unset LD_LIBRARY_PATH LD_PRELOAD   # a test: PyTorch ships its own",
            "Reinstall PyTorch with its own requirements: they pin the version of nvidia-nccl.",
        ),
    ),
    "frameworks/nccl-library-not-found": Answer(
        "libnccl.so.2 is not in the image, or not where the linker looks",
        (
            _WHERE,
            "apt install libnccl2   # in the image; or the nvidia-nccl pip package that PyTorch requires",
            "VLLM_NCCL_SO_PATH=<folder>/libnccl.so.2   # vLLM, for a library in a folder of its own",
        ),
    ),
}


def judge(facts: Facts) -> Results:
    """Judge the errors of PyTorch and the linker, unless NCCL is used later: then the program had a fallback."""
    notices = facts.errors_of_rule(RULE.name)
    used = {id(notice) for notice in notices if facts.job.communicators or exceptions.is_used_below(facts, notice)}
    yield Effects([notice for notice in notices if id(notice) in used])
    failed = [notice for notice in notices if id(notice) not in used]
    if not failed:
        return
    named = dict.fromkeys(error.production for error in failed)
    answers = [_ANSWERS.get(name, _OTHER) for name in named]
    yield RULE.finding(
        f"NCCL cannot be used: {failed[0].message.strip()}",
        cause="; ".join(answer.cause for answer in answers),
        impact="the program ends before it calls NCCL",
        fix=dict.fromkeys(step for answer in answers for step in answer.fix),
        evidence=first_evidence(failed),
        fatal=True,
    )
