"""A cluster that is a folder of programs: what they answer stands in a file, and how they were called in another."""

from __future__ import annotations

import json
import stat
import sys
from pathlib import Path

from repository import ROOT, TESTS

SAMPLE = ROOT / "sample_logs" / "field-notes" / "p4d-4pod-1gpu-efa.log"
STUB = """#!{python}
import json, os, sys
folder = os.path.dirname(os.path.abspath(sys.argv[0]))
with open(os.path.join(folder, "calls"), "a") as calls:
    calls.write(json.dumps([os.path.basename(sys.argv[0]), *sys.argv[1:]]) + "\\n")
answers = json.load(open(os.path.join(folder, "answers.json")))
line = " ".join([os.path.basename(sys.argv[0]), *sys.argv[1:]])
for words, answer in answers:
    if all(word in line for word in words):
        sys.stdout.write(answer)
        sys.exit(0)
print("trouble with the cluster", file=sys.stderr)
print("Error from server (Forbidden): not allowed", file=sys.stderr)
sys.exit(1)
"""


def programs(folder: Path) -> None:
    """Put the programs into a folder; until ``answers.json`` says more, they know nothing."""
    folder.mkdir()
    for name in ("kubectl", "scontrol", "sacct", "nvidia-smi"):
        (folder / name).write_text(STUB.format(python=sys.executable))
        (folder / name).chmod(stat.S_IRWXU)
    (folder / "answers.json").write_text("[]")


def calls(folder: Path) -> list[list[str]]:
    path = folder / "calls"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


POD, JOB = (json.loads((TESTS / "data" / f"cluster-{kind}.json").read_text()) for kind in ("pod", "job"))


def answer_as_kubernetes(programs: Path) -> None:
    answers = [
        (["get pods", "job-name=llama"], json.dumps({"kind": "List", "items": [POD]})),
        (["Job.v1.batch"], json.dumps(JOB)),
        (["--previous"], "before\n"),
        (["logs", "trainer"], SAMPLE.read_text()),
        (["logs", "fetch"], "fetched\n"),
        (["get", "events"], "LAST SEEN   TYPE      REASON\n1m          Warning   BackOff token=sesame-5\n"),
    ]
    (programs / "answers.json").write_text(json.dumps(answers))
