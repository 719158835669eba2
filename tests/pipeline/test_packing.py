"""What one process read arrives in another one as it is."""

from __future__ import annotations

import pickle

import sample_data
from few_examples import every

from nccl_inspect.model.fold.fold import Fold
from nccl_inspect.pipeline import reading


@every(10)
def test_a_fold_arrives_as_it_is(step: int) -> None:
    for name in sample_data.names()[::step]:
        fold = reading.fold(list(map(str, sample_data.files(name))))
        arrived = pickle.loads(pickle.dumps(fold))
        assert isinstance(arrived, Fold)
        for own in ("processes", "unrecognised", "sources", "productions"):
            assert getattr(arrived, own) == getattr(fold, own), f"{name}: {own}"
        for process, log in arrived.processes.items():
            assert {id(burst) for burst in log.open.values()} <= set(map(id, log.steps)), f"{name}: {process}"


def test_numbers_of_any_line_arrive() -> None:
    line = b"vm:4294967295:9999999999 [-1] NCCL INFO Channel 00/-1 : 0[0] -> 1[1] via P2P/CUMEM\n"
    unknown = b"vm:4294967295:9999999999 [-1] NCCL INFO nobody knows this \xff\n" * 3
    fold = reading.fold(line + unknown)
    arrived = pickle.loads(pickle.dumps(fold))
    assert arrived.processes == fold.processes
    assert arrived.unrecognised == fold.unrecognised
