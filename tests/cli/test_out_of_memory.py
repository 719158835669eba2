"""Where memory runs out, one line says so."""

from __future__ import annotations

import resource
import subprocess
from pathlib import Path

import pytest
from terminals import EXE

LINE = b"h%d:7:7 [0] NCCL INFO Channel 00/0 : %d[0] -> %d[1] via P2P/CUMEM\n"


@pytest.mark.parametrize("megabytes", [150, 400])
def test_too_little_memory_is_an_error_in_one_line(megabytes: int, tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    log.write_bytes(b"".join(LINE % (number % 9000, number, number * 7919 % 100_003) for number in range(100_000)))
    limit = megabytes << 20
    done = subprocess.run(
        [*EXE, "summarize", "--jobs", "1", str(log)],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)),
    )
    assert done.returncode == 3
    assert done.stdout == ""
    assert done.stderr.startswith("nccl-inspect: out of memory; ")
    assert done.stderr.count("\n") == 1
