"""Builds the page that judges logs in the browser, from ``docs/try`` and the npm package ``pyodide``.

``python tools/try_page.py [FOLDER]``; needs npm. The folder (``build/try``) can be served by any web server, and
``nccl-inspect-try.html`` in it is the same page in one file, which opens without one. What the package needs is taken
from the environment that runs this, less what is compiled: Pyodide has the pure parts of these packages only.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import json
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import distribution
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "try"
TARGET = ROOT / "build" / "try"
NPM = ROOT / "build" / "try-npm"
SINGLE = "nccl-inspect-try.html"
SAMPLE = ROOT / "sample_logs" / "efa-provider-missing-socket-fallback" / "job.log"
NEEDED = ("click", "defusedxml", "jinja2", "markupsafe", "pyyaml", "tabulate")
"""What reports and anonymised copies need; exports and other formats need more."""
RUNTIME = ("pyodide.mjs", "pyodide.asm.mjs", "pyodide.asm.wasm", "python_stdlib.zip")
LEFT_OUT = (".so", ".pyd", ".pyc", ".pyx", ".c", ".pyi")


@dataclass(frozen=True)
class Part:
    """One of the files that the page loads."""

    name: str
    packed: bytes

    @classmethod
    def from_bytes(cls, name: str, data: bytes) -> Part:
        """Return the part that holds these bytes."""
        return cls(name, gzip.compress(data, 9, mtime=0))

    @property
    def file(self) -> str:
        """Return its name on the server, which changes with what it holds; one that no server unpacks by its suffix."""
        return f"{self.name}.{hashlib.sha256(self.packed).hexdigest()[:12]}.bin"


def build(target: Path = TARGET) -> Path:
    """Write the page and its parts into a folder, anew."""
    parts = list(_parts(runtime()))
    shutil.rmtree(target, ignore_errors=True)
    (target / "parts").mkdir(parents=True)
    for part in parts:
        (target / "parts" / part.file).write_bytes(part.packed)
    texts = {name: (PAGE / name).read_text(encoding="utf-8") for name in ("index.html", "style.css", "app.js")}
    worker = (PAGE / "offline.js").read_text(encoding="utf-8")
    mark = hashlib.sha256(repr([part.file for part in parts]).encode() + repr(texts).encode() + worker.encode())
    name = f"nccl-inspect-try-{mark.hexdigest()[:12]}"
    shell = ["./", "index.html", "style.css", "app.js"]
    own = f"const BUILD = {json.dumps({'name': name, 'shell': shell})};"
    (target / "offline.js").write_text(re.sub(r"const BUILD = .*", own, worker, count=1), encoding="utf-8")
    for file in ("style.css", "app.js"):
        (target / file).write_text(texts[file], encoding="utf-8")
    (target / "index.html").write_text(_make_served(texts["index.html"], name, parts), encoding="utf-8")
    (target / SINGLE).write_text(_make_single(texts, name, parts), encoding="utf-8")
    return target


def runtime() -> Path:
    """Return the folder of the npm package in the version that the lock file names, installed where it is not there."""
    lock = json.loads((PAGE / "package-lock.json").read_text(encoding="utf-8"))
    folder = NPM / "node_modules" / "pyodide"
    if _version(folder) != lock["packages"]["node_modules/pyodide"]["version"]:
        if not shutil.which("npm"):
            sys.exit("npm is not installed; only this page needs it (Debian: apt-get install npm)")
        NPM.mkdir(parents=True, exist_ok=True)
        for name in ("package.json", "package-lock.json"):
            shutil.copy(PAGE / name, NPM)
        install = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
        subprocess.run(install, cwd=NPM, check=True)
    return folder


def _version(package: Path) -> str | None:
    file = package / "package.json"
    return json.loads(file.read_text(encoding="utf-8"))["version"] if file.exists() else None


def _parts(pyodide: Path) -> Iterator[Part]:
    for name in RUNTIME:
        yield Part.from_bytes(name, (pyodide / name).read_bytes())
    lock = json.loads((pyodide / "pyodide-lock.json").read_text(encoding="utf-8"))
    yield Part.from_bytes("pyodide-lock.json", json.dumps({**lock, "packages": {}}).encode())
    yield Part.from_bytes("packages.zip", _compile_modules(_packages(), pyodide))
    yield Part.from_bytes("worker.js", (PAGE / "worker.js").read_bytes())
    yield Part.from_bytes("sample.log", SAMPLE.read_bytes())


def _packages() -> bytes:
    """Return the package, what it needs and the page's own module, as a zip."""
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as packed:
        for name, path in sorted(_files()):
            packed.writestr(zipfile.ZipInfo(name), path.read_bytes())
    return archive.getvalue()


def _files() -> Iterator[tuple[str, Path]]:
    yield "judge.py", PAGE / "judge.py"
    for path in (ROOT / "nccl_inspect").rglob("*"):
        if path.is_file() and path.suffix not in LEFT_OUT:
            yield path.relative_to(ROOT).as_posix(), path
    for name in NEEDED:
        for file in distribution(name).files or ():
            if file.suffix not in LEFT_OUT and ".." not in file.parts and file.name != "RECORD":
                yield file.as_posix(), Path(str(file.locate()))


def _compile_modules(packages: bytes, pyodide: Path) -> bytes:
    """Return the same with its modules compiled, stored: it is packed as a whole afterwards."""
    given, made = (NPM / name for name in ("packages.zip", "compiled.zip"))
    given.write_bytes(packages)
    subprocess.run(["node", PAGE / "compile.mjs", pyodide, given, made], check=True)
    archive = io.BytesIO()
    with zipfile.ZipFile(made) as packed, zipfile.ZipFile(archive, "w") as stored:
        for name in sorted(packed.namelist()):
            if not name.endswith("/"):
                stored.writestr(zipfile.ZipInfo(name), packed.read(name))
    return archive.getvalue()


# --- the pages ----------------------------------------------------------------------------------------------------


def _make_served(page: str, name: str, parts: list[Part]) -> str:
    listed = [{"name": part.name, "file": part.file, "size": len(part.packed)} for part in parts]
    return _fill_page(
        page,
        policy=_policy("'self'", "'self'", "'self'", "'self' blob:"),
        style='<link rel="stylesheet" href="style.css">',
        script=f'{_build(name, listed, offline=True)}\n<script src="app.js"></script>',
    )


def _make_single(texts: dict[str, str], name: str, parts: list[Part]) -> str:
    listed = [{"name": part.name, "size": len(part.packed)} for part in parts]
    embedded = "\n".join(
        f'<script type="text/plain" id="part-{part.name}">{base64.b64encode(part.packed).decode()}</script>'
        for part in parts
    )
    style, script = f"\n{texts['style.css']}", f"\n{texts['app.js']}"
    return _fill_page(
        texts["index.html"],
        policy=_policy("'none'", _hash(script), _hash(style), "blob:"),
        style=f"<style>{style}</style>",
        script=f"{embedded}\n{_build(name, listed, offline=False)}\n<script>{script}</script>",
    )


def _build(name: str, listed: list[dict[str, object]], offline: bool) -> str:
    text = json.dumps({"name": name, "parts": listed, "offline": offline})
    return f'<script type="application/json" id="build">{text}</script>'


def _policy(connect: str, script: str, style: str, worker: str) -> str:
    """Return what the page may do: the report in its frame is bound by it as well, so it names its script and style."""
    own_script, own_style = _report_hashes()
    policy = (
        f"default-src 'none'; connect-src {connect}; script-src {script} {own_script} blob: 'wasm-unsafe-eval'; "
        f"style-src {style} {own_style}; worker-src {worker}; img-src data:; frame-src 'none'; "
        "base-uri 'none'; form-action 'none'"
    )
    return f'<meta http-equiv="Content-Security-Policy" content="{policy}">'


def _report_hashes() -> tuple[str, str]:
    """Return how the policy of a report names its script and its style."""
    import nccl_inspect
    from nccl_inspect.report import Style, html

    text = html.render(nccl_inspect.read(str(SAMPLE)), Style())
    found = re.search(r"script-src ('sha256-[^']+'); style-src ('sha256-[^']+')", text)
    assert found
    return found[1], found[2]


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _fill_page(page: str, **texts: str) -> str:
    for name, text in texts.items():
        page = page.replace(f"<!-- {name} -->", text)
    return page


if __name__ == "__main__":
    made = build(Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else TARGET)
    loaded = sum(path.stat().st_size for path in (made / "parts").iterdir())
    print(f"{made}: {loaded / 1e6:.1f} MB to load; {SINGLE}: {(made / SINGLE).stat().st_size / 1e6:.1f} MB")
    print(f"python3 -m http.server --directory {made} 8000")
