"""Reads how fast a training runs from what its program prints: steps, tokens, samples, and its time in all.

Each kind of statement is a pattern, with the unit of its number. Where a program states the same in several ways, the
one with the most lines counts; of progress bars, the one that took longest, which is hardly that of loading a file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from statistics import median

from nccl_inspect.model.evidence import Evidence
from nccl_inspect.model.measured import IN_ALL, Speed

_IS = r"['\"]?(?: ?\((?:m?s|tgs)\)| in s)?['\"]?[\s:=]+['\"]?"
"""What stands between a name and its number."""
_NUMBER = r"([\d,]*\.?\d+(?:[eE][+-]?\d+)?[kKM]?)"
_TIME = r"((?:(?:\d+ days?, )?\d+:)?\d+:\d\d(?:\.\d+)?|[\d.]+)"
_STATED = (
    (r"elapsed time per iteration \(ms\): " + _NUMBER, "seconds per step", 1e-3),
    (r"elapsed time per iteration \(s\): " + _NUMBER, "seconds per step", 1),
    (rf"(?<![A-Za-z])(?<!eval_)(?:step|iter)[_ ]tim(?:e|ing){_IS}{_NUMBER} ?ms\b", "seconds per step", 1e-3),
    (rf"(?<![A-Za-z])(?<!eval_)(?:step|iter)[_ ]time? \(ms\)['\"]?[\s:=]+{_NUMBER}", "seconds per step", 1e-3),
    (rf"(?<![A-Za-z])(?<!eval_)(?:step|iter)[_ ]tim(?:e|ing)(?! ?\(ms\)){_IS}{_NUMBER}(?! ?ms)", "seconds per step", 1),
    (r"^iter \d+: loss [\d.]+, time " + _NUMBER + "ms", "seconds per step", 1e-3),
    (r"\bstep: \d+, seconds: " + _NUMBER, "seconds per step", 1),
    (rf"[Tt]okens?/s(?:ec)?/(?:device|gpu|GPU){_IS}{_NUMBER}", "tokens per second and GPU", 1),
    (rf"tokens per gpu per second{_IS}{_NUMBER}", "tokens per second and GPU", 1),
    (r"\btps: " + _NUMBER, "tokens per second and GPU", 1),
    (rf"(?<!eval_)[Tt]okens?(?:/s(?:ec)?|[ _]per[ _]sec(?:ond)?){_IS}{_NUMBER}", "tokens per second", 1),
    (rf"(?<![\w.]){_NUMBER} ?[Tt]okens?(?:/s| per second)", "tokens per second", 1),
    (r"CurrSamplesPerSec=" + _NUMBER, "samples per second", 1),
    (rf"(?<!eval_)\b(?:train_)?[Ss]amples(?:[_ ]per[_ ]sec(?:ond)?|/sec){_IS}{_NUMBER}", "samples per second", 1),
    (rf"train_runtime{_IS}{_TIME}", IN_ALL, 1),
    (rf"\b(?:Total )?[Tt]raining time(?: \(s\))?[\s:=]+{_TIME}", IN_ALL, 1),
    (r"^real\s+(\d+m[\d.]+)s", IN_ALL, 1),
)
"""What programs print, and by what the number is multiplied."""
_ROUNDED = re.compile(rf"train_steps_per_second{_IS}{_NUMBER}")
"""Three decimals: of use where nothing else tells."""
_BAR = re.compile(
    r"(?:([^|%]*?):? +)?\b(\d+)%\|[^|]*\| *(\d+)/(\d+) \[((?:\d+:)?\d+:\d\d)<[^,\]]*, *(?:[\d.]+s/it|[\d.]+it/s)"
)
_OF_ANOTHER = re.compile(
    r"(?i)load|fetch|download|map|filter|token|generat|sav|process|convert|eval|valid|pack|cast|shard|compil|warm|captur"
    r"|predict|test|sanity|infer|prompt"
)
"""What programs show the progress of, besides a training."""


def speeds(lines: Sequence[Evidence]) -> list[Speed]:
    """Return how fast a training runs, by what its lines state."""
    found: dict[tuple[str, int], list[tuple[float, Evidence]]] = {}
    stated: dict[str, Speed] = {}
    for line in lines:
        for kind, (pattern, what, scale) in enumerate(_STATED):
            if (match := re.search(pattern, line.text)) and (number := _value(match[1])):
                found.setdefault((what, kind), []).append((number * scale, line))
        if (match := _ROUNDED.search(line.text)) and (number := _value(match[1])):
            stated["seconds per step"] = Speed("seconds per step", 1 / number, 1, line)
    stated.update((speed.what, speed) for speed in _of_bars(lines))
    for what in dict.fromkeys(what for _, what, _ in _STATED):
        if values := max((values for (other, _), values in found.items() if other == what), key=len, default=None):
            numbers = [number for number, _ in values]
            one = max(numbers) if what == IN_ALL else median(numbers)
            stated[what] = Speed(what, one, 1 if what == IN_ALL else len(values), values[-1][1])
    return [stated[what] for what in dict.fromkeys(what for _, what, _ in _STATED) if what in stated]


def _of_bars(lines: Sequence[Evidence]) -> Iterator[Speed]:
    """Yield what the progress bar of a training states, at its last line."""
    bars: dict[tuple[str, int], tuple[float, int, Evidence]] = {}
    for line in lines:
        match = _BAR.search(line.text) if "%|" in line.text else None
        if match and not _OF_ANOTHER.search(match[1] or ""):
            key = match[1] or "", int(match[4])
            bars[key] = max(
                bars.get(key, (0.0, 0, line)), (_value(match[5]), int(match[3]), line), key=lambda bar: bar[0]
            )
    if not bars:
        return
    (name, steps), (seconds, done, line) = max(bars.items(), key=lambda item: item[1][0])
    if seconds and done:
        yield Speed("seconds per step", seconds / done, 1, line)
        if done == steps and not name:
            yield Speed(IN_ALL, seconds, 1, line)


def _value(text: str) -> float:
    """Return a number or a time in seconds; 0 where it is none."""
    days, _, clock = text.rpartition(" days, " if "days" in text else " day, ")
    parts = re.split("[:m]", clock.replace(",", ""))
    try:
        *larger, last = (float(part.rstrip("kKM")) * {"k": 1e3, "K": 1e3, "M": 1e6}.get(part[-1:], 1) for part in parts)
    except ValueError:
        return 0.0
    seconds: float = int(days or 0) * 86400 + last
    for power, part in enumerate(reversed(larger), 1):
        seconds += part * 60.0**power
    return seconds
