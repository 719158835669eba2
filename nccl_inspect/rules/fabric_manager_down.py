"""CUDA is not ready because the fabric manager is not running."""

from collections.abc import Iterator

from nccl_inspect.judging import stated_errors
from nccl_inspect.judging.engine import Facts
from nccl_inspect.judging.hardware import cuda
from nccl_inspect.judging.page_words import Hit
from nccl_inspect.judging.process_ends import exceptions
from nccl_inspect.judging.statements import error_of

_NOT_READY, _LATE = 802, 919
"""The second since CUDA 13, if the driver's wait for the fabric times out."""


def find(facts: Facts) -> Iterator[Hit]:
    """Find CUDA errors 802 and 919, whoever prints them; no other fault causes them."""
    stated = [n for n in facts.with_role("program-cuda-error") if "system not yet initialized" in error_of(n)]
    failed = [notice for notice in cuda.failed_calls(facts) if cuda.code_of(notice) in (_NOT_READY, _LATE)]
    failed += [notice for notice in stated if not exceptions.is_survived(facts, notice)]
    service = facts.errors_of_rule("fabric-manager-down")
    if failed or service:
        named = {
            "failed": failed,
            "late": failed and cuda.code_of(failed[0]) == _LATE,
            "misfit": facts.notices("fabric/fabric-manager-version"),
            "dead": failed or stated_errors.is_fatal(facts, service),
        }
        yield Hit([*failed, *service], named)
