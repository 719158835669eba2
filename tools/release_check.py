"""Builds what is released, checks it, and runs it from an unrelated folder: ``python tools/release_check.py``.

Everything happens in a folder of its own; ``build``, ``twine`` and ``cyclonedx-bom`` are installed there. The wheel is
installed for each Python from 3.11 on that the path has. ``--keep FOLDER`` puts what was checked into a folder: wheel,
source archive, zipapp, what is in them (CycloneDX), how they were made (an in-toto statement with a SLSA predicate, not
signed), and ``SHA256SUMS``.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import venv
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
SAMPLE = ROOT / "sample_logs" / "socket-2node-tp4-dp2" / "job.log"
SAMPLES = (SAMPLE, SAMPLE.with_name("job.log.gz"))
TOOLS = ("build", "twine", "cyclonedx-bom")
MINORS = range(11, 15)
LATE = ("numpy", "pandas", "pyarrow")
"""What reports do not load."""
sys.path.insert(0, str(Path(__file__).parent))


def main() -> None:
    """Run all checks; the first one that fails ends it."""
    import pyz

    began, source = datetime.now(UTC), _source()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tools = folder / "tools"
        venv.create(tools, with_pip=True)
        _run(tools / "bin" / "pip", "install", "--quiet", *TOOLS)
        _run(tools / "bin" / "python", "-m", "build", "--outdir", folder / "dist", ROOT)
        built = sorted((folder / "dist").iterdir())
        _run(tools / "bin" / "twine", "check", "--strict", *built)
        wheel = next(file for file in built if file.suffix == ".whl")
        target = folder / "nccl-inspect.pyz"
        pyz.build(target)
        log = next(sample for sample in SAMPLES if sample.exists())
        pythons = _pythons()
        told = {}
        for version, python in pythons.items():
            clean = _environment(folder / version, python, tools, wheel)
            told[version] = _run(clean / "bin" / "nccl-inspect", "summarize", log, folder=folder)
            assert "Traceback" not in told[version], told[version]
            _check_imports(clean, log, folder)
            found = _run(python, "-I", target, "summarize", log, folder=folder)
            assert found == told[version], f"the zipapp tells something else than the wheel with Python {version}"
        assert len(set(told.values())) == 1, f"not the same with each of {', '.join(told)}"
        bare = _environment(folder / "bare", sys.executable, tools, "--no-deps", wheel)
        _run(tools / "bin" / "pip", "--python", bare, "install", "--quiet", *pyz.list_needs())
        own = platform.python_version()
        lists = [
            _list_components(tools, folder / own, folder / f"{wheel.name}.cdx.json"),
            _list_components(tools, bare, folder / f"{target.name}.cdx.json"),
        ]
        made = [*built, target, *lists]
        versions = _run(tools / "bin" / "pip", "freeze").split()
        statement = folder / "provenance.intoto.json"
        statement.write_text(json.dumps(provenance(made, versions, began, source), indent=1) + "\n", encoding="utf-8")
        print(f"sound with Python {', '.join(pythons)}: {', '.join(file.name for file in made)}")
        if sys.argv[1:2] == ["--keep"]:
            _keep(Path(sys.argv[2]), [*made, statement])


def _pythons() -> dict[str, str]:
    """Return the Pythons of the path that the package supports, by version; this one first."""
    found = {platform.python_version(): sys.executable}
    for minor in MINORS:
        if minor != sys.version_info.minor and (path := shutil.which(f"python3.{minor}")):
            done = subprocess.run(
                [path, "-c", "import platform; print(platform.python_version())"], capture_output=True
            )
            if done.returncode == 0:  # a shim may stand for nothing
                found[done.stdout.decode().strip()] = path
    return found


def _environment(folder: Path, python: str, tools: Path, *packages: object) -> Path:
    """Return an environment with packages, and nothing else: no pip."""
    _run(python, "-m", "venv", "--without-pip", folder)
    _run(tools / "bin" / "pip", "--python", folder, "install", "--quiet", *packages)
    return folder


def _check_imports(clean: Path, log: Path, folder: Path) -> None:
    """Check that reports load none of the large packages, though they are installed."""
    command = [clean / "bin" / "python", "-I", "-X", "importtime", "-m", "nccl_inspect", "summarize", log]
    done = subprocess.run(list(map(str, command)), cwd=folder, capture_output=True, text=True, check=True)
    loaded = set(re.findall(r"\| +(\w+)", done.stderr))
    assert "nccl_inspect" in loaded and loaded.isdisjoint(LATE), f"a report loads {loaded.intersection(LATE)}"


def _list_components(tools: Path, environment: Path, target: Path) -> Path:
    """Write which packages an environment has, as CycloneDX; the program validates it."""
    options = ("--output-reproducible", "--output-format", "JSON", "--pyproject", ROOT / "pyproject.toml")
    _run(tools / "bin" / "cyclonedx-py", "environment", *options, "--output-file", target, environment)
    listed = {component["name"] for component in json.loads(target.read_text(encoding="utf-8"))["components"]}
    assert {"click", "regex", "defusedxml"} <= listed, listed
    return target


def _source() -> dict[str, Any]:
    """Return which source this is: its commit, where there is one, and whether files differ from it."""
    if not (ROOT / ".git").exists():
        return {"name": "source"}
    commit = _run("git", "-C", ROOT, "rev-parse", "HEAD").strip()
    changed = bool(_run("git", "-C", ROOT, "status", "--porcelain").strip())
    return {"name": "source", "digest": {"gitCommit": commit}, "annotations": {"uncommittedChanges": changed}}


def provenance(made: list[Path], tools: list[str], began: datetime, source: dict[str, Any]) -> dict[str, Any]:
    """Return how files were made, as far as that is known: a statement that nobody signed."""
    server, repository, run = (os.environ.get(f"GITHUB_{name}", "") for name in ("SERVER_URL", "REPOSITORY", "RUN_ID"))
    source = source | ({"uri": f"git+{server}/{repository}"} if repository else {})
    backend = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["build-system"]["requires"]
    return {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": file.name, "digest": {"sha256": _digest(file)}} for file in made],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": "urn:nccl-inspect:make-dist",
                "externalParameters": {"command": "make dist"},
                "internalParameters": {"python": platform.python_version(), "platform": platform.platform()},
                "resolvedDependencies": [source, *({"name": text} for text in (*backend, *tools))],
            },
            "runDetails": {
                "builder": {"id": f"{server}/{repository}/actions" if repository else "urn:nccl-inspect:a-machine"},
                "metadata": {
                    **({"invocationId": run} if run else {}),
                    "startedOn": f"{began:%Y-%m-%dT%H:%M:%SZ}",
                    "finishedOn": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
                },
            },
        },
    }


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _keep(folder: Path, files: list[Path]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for file in files:
        shutil.copy(file, folder)
    sums = (f"{_digest(file)}  {file.name}\n" for file in files)
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
