"""Times as people read them."""

from __future__ import annotations

from nccl_inspect.util.times import show_time


def test_seconds_from_a_start_are_no_date() -> None:
    assert [show_time(text) for text in ("47.5", "1700000000.25")] == ["48 s", "2023-11-14 22:13:20Z"]
