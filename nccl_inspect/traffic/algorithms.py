"""The algorithm and protocol that NCCL chose for a call, if the log has subsystem TUNING."""

from __future__ import annotations

from typing import NamedTuple

from nccl_inspect.event.base import Process
from nccl_inspect.event.types import Notice as NoticeEvent
from nccl_inspect.model.inventory import Calls
from nccl_inspect.model.job import Job

_ALGORITHMS = ("TREE", "RING", "COLLNET_DIRECT", "COLLNET_CHAIN", "NVLS", "NVLS_TREE", "PAT")
_PROTOCOLS = ("LL", "LL128", "SIMPLE")
_NAMED = {
    "nccl/algorithm-symmetric": "SYMMETRIC",
    "nccl/algorithm-copy-engine": "COPY_ENGINE",
    "nccl/algorithm-copy-engine-hierarchical": "COPY_ENGINE",
}


class AlgorithmChoice(NamedTuple):
    """The algorithm and protocol that NCCL chose."""

    algorithm: str
    protocol: str


class AlgorithmChoices:
    """All choices in a log; rank 0 of a communicator prints them, without naming the communicator."""

    def __init__(self, job: Job) -> None:
        self._by_process: dict[Process, list[tuple[str | None, int, AlgorithmChoice]]] = {}
        for notice in job.notices:
            if isinstance(notice.event, NoticeEvent) and (entry := _choice(notice.event)):
                for process in notice.processes:
                    self._by_process.setdefault(process, []).append(entry)

    def of(self, calls: Calls, size: int) -> list[AlgorithmChoice]:
        """The choices for calls of this kind and size; several if sizes or communicators differ.

        Args:
            calls: of one kind.
            size: bytes of one element.
        """
        low, high = calls.smallest * size, calls.largest * size
        entries = self._by_process.get(calls.leader, []) if calls.leader else []
        for times in (1, calls.nranks):  # a few versions print the size of the whole result
            choices = [
                choice
                for func, count, choice in entries
                if func in (None, calls.func) and low * times <= count <= high * times
            ]
            if choices:
                return list(dict.fromkeys(choices))
        return []


def _choice(event: NoticeEvent) -> tuple[str | None, int, AlgorithmChoice] | None:
    values = dict(event.values)
    if event.qualified_name == "nccl/algorithm-chosen":
        return values["func"], values["bytes"], AlgorithmChoice(values["algo"], values["proto"])
    if event.qualified_name == "nccl/algorithm-chosen-old":
        algorithm, protocol = values["algo_index"], values["proto_index"]
        if 0 <= algorithm < len(_ALGORITHMS) and 0 <= protocol < len(_PROTOCOLS):
            return values.get("func"), values["bytes"], AlgorithmChoice(_ALGORITHMS[algorithm], _PROTOCOLS[protocol])
    if named := _NAMED.get(event.qualified_name):
        return values["func"], values["bytes"], AlgorithmChoice(named, "")
    return None
