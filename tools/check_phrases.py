"""Find phrases that do not read as American technical English: ``make lint`` fails where one comes back.

Checked are the strings and docstrings of the package, the texts of the grammar, README, CONTRIBUTING, docs and the
pages of the rules. Code in Markdown is passed over but for what rules say: logs and shells say what they say.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
_PHRASES = {
    r"\b(?:is|are|was|were|be|been|being) told\b(?! to\b)": "shown, reported",
    r"\btells? (?:which|what|who|whom|whose|why|how|whether|where|of)\b": "shows, says, names",
    r"\bin vain\b": "without success, or say what happened instead",
    r"\bso many\b": "the number itself, or 'that many'",
    r"\bstands? (?:in|there|behind|before|beside|under|above|below|at)\b": "is, appears, precedes, follows",
    r"\bfor want of\b": "for lack of; because there is no",
    r"\bby (?:itself|themselves)\b": "by default, automatically, alone",
    r"(?<!\bthere )(?<!\bthere\n)\b(?:is|are) no (?!longer\b|more\b|one\b|other\b|such\b|need\b|way\b|reason\b)[a-z]": (
        "is not a"
    ),
    r"\b(?:goes|going|went|gone|go) on\b(?! to\b)": "continues",
    r"\bnot in the log:": "Cause unknown from this log. Likely:",
    r"\b(?:holds?|held) against\b": "compare with, check against",
    r"\bwhat there (?:is|are)\b": "name it",
    r"\bshall\b": "must, should, or the imperative",
    r"\b(?:takes?|took|taken|taking) apart\b": "parse, split",
}
_FOUND = {re.compile(pattern, re.IGNORECASE): better for pattern, better in _PHRASES.items()}
_FENCE = re.compile(r"^(```|~~~).*?^\1|<!-- output:.*?<!-- end -->|`[^`\n]+`", re.MULTILINE | re.DOTALL)
_RULE = re.compile(r"^```rule\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LOG = re.compile(r"^>>> [^#\n]*#?|^(?!>>> ).*$", re.MULTILINE)
_EXAMPLES = re.compile(r"^```examples\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_SAYS = re.compile(r"^\s*says:(.*)", re.MULTILINE)
_GENERATED = ("docs/reference/", "docs/log-format/", "docs/man/")


class Text(NamedTuple):
    """A text that somebody reads."""

    file: Path
    line: int
    text: str


def texts() -> Iterator[Text]:
    """Yield all texts that are checked; generated pages are checked where they come from."""
    for path in sorted((ROOT / "nccl_inspect").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
                yield Text(path, node.lineno, node.value)
    for path in sorted((ROOT / "nccl_inspect").rglob("*.grammar")):
        text = path.read_text(encoding="utf-8")
        for match in _SAYS.finditer(text):
            yield Text(path, text.count("\n", 0, match.start(1)) + 1, match[1])
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
    for path in sorted([*pages, *(ROOT / "nccl_inspect").rglob("*.md")]):
        if not path.relative_to(ROOT).as_posix().startswith(_GENERATED):
            prose = _RULE.sub(r"\n\1", path.read_text(encoding="utf-8"))
            prose = _EXAMPLES.sub(lambda examples: _LOG.sub("", examples[0]), prose)
            yield Text(path, 1, _FENCE.sub(lambda code: "\n" * code[0].count("\n"), prose))


def hits() -> Iterator[str]:
    """Yield each phrase that came back, as ``file:line: phrase -> better``."""
    for file, line, text in texts():
        for pattern, better in _FOUND.items():
            for match in pattern.finditer(text):
                at = line + text.count("\n", 0, match.start())
                shown = " ".join(text[max(0, match.start() - 30) : match.end() + 20].split())
                yield f"{file.relative_to(ROOT)}:{at}: '{match[0]}' -> {better}   …{shown}…"


def main() -> int:
    """Print the hits; the exit status says whether there are any."""
    lines = list(hits())
    for line in lines:
        print(line)
    return bool(lines)


if __name__ == "__main__":
    sys.exit(main())
