"""Messages that NCCL cut: until 2.28 prefix and message share 1,024 bytes."""

import nccl_inspect
from nccl_inspect.event.types import Message, NetDevices, TreeLinks

PREFIX = "llama-3-8b-node-0-0:188:585 [0] NCCL INFO "
DEVICES = (
    "NET/IB : Using" + "".join(f" [{index}]mlx5_{index}:1/IB" for index in range(80)) + " [RO]; OOB eth0:10.0.0.1<0>"
)
TREES = "Trees" + "".join(f" [{channel}] 1/-1/-1->0->-1" for channel in range(60))


def events(message: str, size: int = 1023) -> list[nccl_inspect.event.types.Event]:
    return list(nccl_inspect.events((PREFIX + message)[:size].encode()))


def test_a_long_list_that_is_whole_has_its_values() -> None:
    (event,) = events(DEVICES, size=10_000)
    assert isinstance(event, NetDevices)
    assert len(event.devices) == 80


def test_the_beginning_of_a_known_message_is_recognised_without_values() -> None:
    (event,) = events(DEVICES)
    assert isinstance(event, Message)
    assert event.production == "net-ib"
    assert event.cut
    assert event.values == ()


def test_trees_that_were_cut_keep_the_channels_that_are_whole() -> None:
    (event,) = events(TREES)
    assert isinstance(event, TreeLinks)
    assert event.cut
    assert event.trees[0] == (0, 1, -1, -1, 0, -1)


def test_a_short_beginning_is_no_cut_message() -> None:
    assert events("Init timings - ncclCommInitRank: rank 0 nranks 8 total 1.00 (ker") == []
