"""The recordings of ``tools/break_mesh.py``, with what was done to each."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from repository import ROOT

MESHES = tuple(ROOT / "sample_logs" / name for name in ("mesh", "mesh-nodes", "mesh-gpus"))
"""Two ranks of one machine; eight ranks on four nodes; four ranks of one machine, each with a GPU."""


@dataclass(frozen=True)
class Recording:
    """A job that was broken on purpose."""

    folder: Path
    kind: str
    what: str
    culprit: int | None

    @property
    def name(self) -> str:
        """Return the scenario and how communicators were made."""
        return self.folder.name

    def __str__(self) -> str:
        return self.name


def recordings(mesh: Path) -> list[Recording]:
    return [_recording(folder) for folder in sorted(mesh.iterdir()) if folder.is_dir()]


def _recording(folder: Path) -> Recording:
    truth = json.loads((folder / "truth.json").read_text(encoding="utf-8"))
    return Recording(folder, truth["kind"], truth["what_happened"], truth["culprit_rank"])
