"""Classes whose fields are read from the bodies of classes: from Python 3.14 on only texts stand there."""

from __future__ import annotations

import re
from pathlib import Path

import nccl_inspect

_DECLARES = re.compile(r"^from nccl_inspect\.util\.records import ", re.MULTILINE)
_TEXTS = "from __future__ import annotations\n"


def test_modules_with_records_keep_annotations_as_texts() -> None:
    folder = Path(nccl_inspect.__file__).parent
    modules = {path: path.read_text(encoding="utf-8") for path in sorted(folder.rglob("*.py"))}
    lacking = [str(path) for path, text in modules.items() if _DECLARES.search(text) and _TEXTS not in text]
    assert not lacking, f"add '{_TEXTS.strip()}'"
