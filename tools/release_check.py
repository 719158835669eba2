"""Builds what is released, checks it, and runs it from an unrelated folder: ``python tools/release_check.py``.

Everything happens in a folder of its own; ``build`` and ``twine`` are installed there. ``--keep FOLDER`` puts what was
checked into a folder: wheel, source archive, zipapp, and ``SHA256SUMS`` of them.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).parent.parent
SAMPLE = ROOT / "sample_logs" / "socket-2node-tp4-dp2" / "job.log"
SAMPLES = (SAMPLE, SAMPLE.with_name("job.log.gz"))
sys.path.insert(0, str(Path(__file__).parent))


def main() -> None:
    """All checks; the first one that fails ends it."""
    import pyz

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tools, clean = folder / "tools", folder / "clean"
        venv.create(tools, with_pip=True)
        _run(tools / "bin" / "pip", "install", "--quiet", "build", "twine")
        _run(tools / "bin" / "python", "-m", "build", "--outdir", folder / "dist", ROOT)
        built = sorted((folder / "dist").iterdir())
        _run(tools / "bin" / "twine", "check", "--strict", *built)
        venv.create(clean, with_pip=True)
        _run(clean / "bin" / "pip", "install", "--quiet", next(file for file in built if file.suffix == ".whl"))
        log = next(sample for sample in SAMPLES if sample.exists())
        wanted = _run(clean / "bin" / "nccl-inspect", "summarize", log, folder=folder)
        assert "Traceback" not in wanted, wanted
        target = folder / "nccl-inspect.pyz"
        pyz.build(target)
        found = _run(sys.executable, "-I", target, "summarize", log, folder=folder)
        assert found == wanted, "the zipapp tells something else than the wheel"
        print(f"sound: {', '.join(file.name for file in built)}, {target.name} ({target.stat().st_size >> 10} kB)")
        if sys.argv[1:2] == ["--keep"]:
            _keep(Path(sys.argv[2]), [*built, target])


def _keep(folder: Path, files: list[Path]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for file in files:
        shutil.copy(file, folder)
    sums = (f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in files)
    (folder / "SHA256SUMS").write_text("".join(sums), encoding="utf-8")


def _run(*command: object, folder: Path | None = None) -> str:
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    if folder:
        environment["XDG_CACHE_HOME"] = str(folder / "cache")
    done = subprocess.run(
        list(map(str, command)), cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"{command[0]} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    main()
