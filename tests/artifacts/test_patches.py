"""What is to be pasted into the pods of a workload mends the fault that is told of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from answers import inputs_of
from few_examples import every

import nccl_inspect
from nccl_inspect.model.finding import Finding

FAULTY = {
    one.name.rpartition("/")[2]: dict(one.texts)
    for one in inputs_of("built")
    if one.name.startswith("artifacts/patches/") and " in a " in one.name
}
"""Named for the rule and the kind of workload; each is a log, and the workload in `job.yaml`."""


def find_patches(folder: Path, name: str, log: bytes, text: str) -> Finding | None:
    (folder / "job.log").write_bytes(log)
    (folder / "job.yaml").write_text(text)
    rule = name.partition(" ")[0]
    return next((one for one in nccl_inspect.read(str(folder)).findings if one.rule == rule), None)


def paste_patch(text: str, fixes: list[str]) -> str:
    """Return the documents with each piece where its comment says that it belongs."""
    documents = [document for document in yaml.safe_load_all(text) if document]
    for fix in fixes:
        match = re.match(r"(.+?)   # job\.yaml:\d+, under ([^\s,]+)", fix)
        if match is None:
            continue
        piece = yaml.safe_load(match[1])
        (node,) = (node for document in documents if (node := at(document, match[2])) is not None)
        if isinstance(piece, list):
            node.extend(piece)
        else:
            node.update(piece)
    return "---\n".join(yaml.safe_dump(document, sort_keys=False) for document in documents)


def at(node: Any, path: str) -> Any:
    for part in re.findall(r"[^.\[\]]+|\[\d+\]", path):
        try:
            node = node[int(part[1:-1])] if part.startswith("[") else node[part]
        except (KeyError, IndexError, TypeError):
            return None
    return node


def resources(node: Any) -> Iterator[dict[str, Any]]:
    if isinstance(node, dict):
        yield from (node[key] for key in ("resources", "resourcesPerNode") if key in node)
    for entry in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from resources(entry)


def list_unmended(folder: Path, name: str, log: bytes, text: str) -> Iterator[str]:
    finding = find_patches(folder, name, log, text)
    if finding is None or not all(one.source.endswith("job.yaml") and one.line > 9 for one in finding.evidence):
        yield f"not found in the workload: {finding and finding.evidence}"
        return
    mended = paste_patch(text, finding.fix)
    if mended == text or find_patches(folder, name, log, mended):
        yield f"what is to be pasted does not mend it: {finding.fix}"
    for asked in resources([*yaml.safe_load_all(mended)]):
        limits, requests = asked.get("limits", {}), asked.get("requests", asked.get("limits", {}))
        if any(requests[key] != limits[key] for key in requests if "/" in key):
            yield f"refused: requests {requests}, limits {limits}"


@every(7)
def test_what_is_pasted_mends_a_fault(step: int, tmp_path: Path) -> None:
    wrong = [
        f"tests/answers/built/artifacts.zip, patches/{name}: {what}"
        for name, texts in [*FAULTY.items()][::step]
        for what in list_unmended(tmp_path, name, texts["job.log"], texts["job.yaml"].decode())
    ]
    assert len(FAULTY) == 36
    assert not wrong, "\n".join(wrong)
