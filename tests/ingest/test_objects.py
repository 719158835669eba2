"""JSON objects: the reader that knows most of one is remembered by its shape, and is always the right one."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from nccl_inspect.ingest import envelopes
from nccl_inspect.ingest.exports.json_records import JsonReader, JsonReaders
from nccl_inspect.ingest.lines.envelope_fields import Inner, Stated, worth

READERS = [
    module.READ for module in envelopes.shipped().values() if isinstance(getattr(module, "READ", None), JsonReader)
]
TEXTS = st.sampled_from(["", "a line", "3", "-1", "P", "2026-11-20T23:13:07Z"])
VALUES = st.one_of(TEXTS, st.sampled_from([None, 0, 7, -1, 1.5, True, [], [104, 105], [300], [True], [1.5], ["a", ""]]))
NAMES = """
    log stream time msg rank hostname message timestamp body line date labels pod kubernetes pod_name events logEvents
    attributes MESSAGE _raw result textPayload resource attrs logtag kubernetes.pod_name
"""
OBJECTS = st.recursive(
    st.dictionaries(st.sampled_from(NAMES.split()), VALUES, max_size=5),
    lambda inner: st.dictionaries(
        st.sampled_from(NAMES.split()), st.one_of(VALUES, inner, st.lists(inner, max_size=3)), max_size=5
    ),
    max_leaves=4,
)


def told_by_all(line: bytes) -> list[Inner]:
    """What the one that knows most says, when all are asked."""
    return max((reader(line) for reader in READERS), key=worth)


@given(st.lists(st.one_of(OBJECTS, VALUES, st.lists(OBJECTS, max_size=2)), max_size=8))
def test_what_is_remembered_of_objects_tells_what_asking_all_readers_would(documents: list[Any]) -> None:
    remembering = JsonReaders(READERS)
    for document in documents:
        line = json.dumps(document).encode()
        assert remembering(line) == told_by_all(line)


@given(OBJECTS, st.data())
def test_other_values_of_the_same_kind_do_not_mislead(document: dict[str, Any], data: st.DataObject) -> None:
    remembering = JsonReaders(READERS)
    remembering(json.dumps(document).encode())
    other = json.dumps(_varied(document, data)).encode()
    assert remembering(other) == told_by_all(other)


def _varied(value: Any, data: st.DataObject) -> Any:
    if isinstance(value, dict):
        return {name: _varied(one, data) for name, one in value.items()}
    if isinstance(value, list):
        return [_varied(one, data) for one in value]
    return data.draw(VALUES)


def test_objects_of_one_kind_are_asked_for_once() -> None:
    asked = 0

    class Counting(JsonReader):
        def read(self, document: Any) -> list[Inner]:
            nonlocal asked
            asked += 1
            return super().read(document)

    readers = JsonReaders([Counting("log", time="time"), Counting("log", time="time", label="pod"), Counting("msg")])
    for number in range(100):
        (inner,) = readers(b'{"log": "a line", "time": "%d", "pod": "llama-%d"}' % (number, number))
        assert inner.stated[:2] == (str(number), f"llama-{number}")
    assert asked == 2 + 100


def test_names_are_known_however_they_are_written() -> None:
    line = rb'{"\u006cog":"a line","stream":"stdout","other":"a text that is longer"}'
    assert envelopes.contents(line) == [Inner(b"a line", Stated(stream="stdout"))]


def test_shapes_that_never_come_again_are_forgotten() -> None:
    readers = JsonReaders(READERS)
    tracemalloc.start()
    for number in range(300):
        large = {"logEvents": [{"message": "a line"}] * (3000 + number)} if number % 2 else {}
        assert readers(json.dumps({"message": "a line", **large, f"n{number}": "x" * number}).encode())
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert size < 4 << 20
