"""Which of the lines that are kept as results and speeds show that a program has done work with other ranks."""

from __future__ import annotations

from nccl_inspect.util.patterns import compile_later

_WORK = compile_later(
    r"(?i:\b(?:step|iter(?:ation)?|epoch)\b.{0,40}?\d.{0,80}?\bloss\b)|['\"]loss['\"]: *['\"]?\d"
    r"|per iteration|\bstep[_ ]tim(?:e|ing)|[Ss]amples(?:[_ ][Pp]er[_ ]|P)|(?i:\bbus_?bw\b)\D{1,4}[\d.]*[1-9]"
    r"|[Tt]okens?(?:/s|[_ ]per[_ ]s).{0,6}[\s:='\"]0*\.?0*[1-9]|[1-9][\d.]* ?tokens(?:/s| per second)"
    r"|(?:^|\r|[Tt]rain\w*:?|[Ee]poch[^|%]{0,20}:) *\d+%\|[^|]*\| *[1-9]\d*/\d+ \["
    r"|train_runtime|raining (?:complete|finished)|ished training"
)
"""What is only printed of work that was done, in lines kept as results and speeds; what a shell prints of a program
that has ended, and the progress of loading, are none."""
_EARLIER = compile_later(r"(?i)\b(?:loaded|loading|resum(?:ed|ing)|restor(?:ed|ing))\b")
"""What says that a step was done by an earlier run."""


def shows_work(text: str) -> bool:
    """Return whether a line is only printed when work was done."""
    return _WORK.search(text) is not None and _EARLIER.search(text) is None
