"""Pages that are notebooks: their ``sh`` and ``python`` blocks run in order, a ``text`` block right below is output.

``python docs/notebook.py PAGE`` writes the outputs of a page anew.
"""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import tempfile
from contextlib import chdir, redirect_stdout
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MARK = "<!-- notebook -->"
_BLOCK = re.compile(r"^```(sh|python)\n(.*?)^```\n(?:\n```text\n.*?^```\n)?", re.DOTALL | re.MULTILINE)


def is_notebook(text: str) -> bool:
    """Return whether a page is one."""
    return MARK in text


def run(text: str) -> str:
    """Return the page with the outputs of its blocks; they run in an empty folder that has the sample logs."""
    names: dict[str, object] = {"__name__": "__main__"}

    def run_block(found: re.Match[str]) -> str:
        language, code = found[1], found[2]
        printed = _shell(code) if language == "sh" else _python(code, names)
        lines = [line.rstrip() for line in printed.splitlines()]
        below = "\n".join(("", "```text", *lines, "```", "")) if lines else ""
        return f"```{language}\n{code}```\n{below}"

    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        Path("sample_logs").symlink_to(ROOT / "sample_logs")
        return _BLOCK.sub(run_block, text)


def _shell(code: str) -> str:
    env = {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}", "LC_ALL": "C.UTF-8"}
    if "PYTHONPATH" in os.environ:
        env["PYTHONPATH"] = os.environ["PYTHONPATH"]
    return subprocess.run(["bash", "-e", "-c", code], env=env, stdout=subprocess.PIPE, text=True, check=True).stdout


def _python(code: str, names: dict[str, object]) -> str:
    printed = io.StringIO()
    with redirect_stdout(printed):
        exec(compile(code, "<notebook>", "exec"), names)
    return printed.getvalue()


def main() -> None:
    """Write the outputs of the named pages."""
    for name in sys.argv[1:]:
        path = Path(name).resolve()
        path.write_text(run(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
