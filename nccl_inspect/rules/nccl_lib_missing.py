"""The program finds no NCCL, or not the one that it was built for."""

from collections.abc import Iterator

from nccl_inspect.judging.engine import Effects, Result, Rule
from nccl_inspect.judging.facts import Facts, first_said
from nccl_inspect.judging.hardware.cuda import Answer
from nccl_inspect.judging.process_ends import exceptions

RULE = Rule(
    name="nccl-lib-missing",
    category="environment",
    severity="error",
    title="The program finds no NCCL, or not the one that it was built for",
    local=True,
)
_WHERE = "ldconfig -p | grep libnccl; pip list | grep nvidia-nccl   # in the container: which ones are there?"
_OTHER = Answer("the message tells", (_WHERE,))
_ANSWERS = {
    "frameworks/nccl-not-built-in": Answer(
        "PyTorch was built without NCCL: a build for CPUs, or for Windows or macOS, where there is no NCCL",
        (
            "python -c 'import torch; print(torch.version.cuda, torch.distributed.is_nccl_available())'   # has it?",
            "Install a build of PyTorch with CUDA, on Linux (on Windows: in WSL2).",
            'torch.distributed.init_process_group(backend="gloo")   # where no GPU is to be used',
        ),
    ),
    "frameworks/nccl-symbol-undefined": Answer(
        "the program loads an older libnccl than it was built with: one on LD_LIBRARY_PATH or of the system is found "
        "before its own, or the package with its own is of another version",
        (
            _WHERE,
            "echo $LD_LIBRARY_PATH $LD_PRELOAD $VLLM_NCCL_SO_PATH   # does one of them lead to another libnccl?",
            "unset LD_LIBRARY_PATH LD_PRELOAD   # as a test: PyTorch brings its own",
            "Install PyTorch anew with its own requirements: these name the version of nvidia-nccl.",
        ),
    ),
    "frameworks/nccl-library-not-found": Answer(
        "libnccl.so.2 is not in the image, or not where the linker looks",
        (
            _WHERE,
            "apt install libnccl2   # in the image; or the package nvidia-nccl of pip that PyTorch names",
            "VLLM_NCCL_SO_PATH=<folder>/libnccl.so.2   # vLLM, where it is in a folder of its own",
        ),
    ),
}


def judge(facts: Facts) -> Iterator[Result]:
    """Judge what PyTorch and the linker say, unless NCCL is used all the same: then the program had another way."""
    told = facts.leading_to(RULE.name)
    used = {id(one) for one in told if facts.job.communicators or exceptions.is_used_below(facts, one)}
    yield Effects([one for one in told if id(one) in used])
    said = [one for one in told if id(one) not in used]
    if not said:
        return
    named = dict.fromkeys(notice.production for notice in said)
    answers = [_ANSWERS.get(name, _OTHER) for name in named]
    yield RULE.finding(
        f"NCCL cannot be used: {said[0].message.strip()}",
        cause="; ".join(answer.cause for answer in answers),
        impact="the program ends before it calls NCCL",
        fix=dict.fromkeys(step for answer in answers for step in answer.fix),
        evidence=first_said(said),
        fatal=True,
    )
