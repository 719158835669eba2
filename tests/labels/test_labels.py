"""Each label is about a recorded input; tests/answers compares them, since there each input is judged once."""

from __future__ import annotations

from known_labels import KEYS, inputs, labels


def test_each_label_is_about_an_input_and_has_known_keys() -> None:
    unknown = [f"{file}: {name}" for name, (file, _) in labels().items() if name not in inputs()]
    odd = [
        f"{file}: {name}: {sorted(keys - KEYS)}"
        for name, (file, label) in labels().items()
        if (keys := {*label}) - KEYS
    ]
    assert not unknown + odd


def test_every_log_of_a_kind_with_labels_has_one() -> None:
    folders = {name.rpartition("/")[0] for name in labels() if name.startswith(("tests/", "sample_logs/"))}
    assert not [name for name in inputs() if name.rpartition("/")[0] in folders and name not in labels()]
