"""NCCL cannot parse or use the value of a setting."""

from collections.abc import Iterator

from nccl_inspect.judging.engine import Facts, first_evidence, value
from nccl_inspect.judging.facts import evidence_of_settings
from nccl_inspect.judging.page_words import Hit
from nccl_inspect.util.patterns import later

_VARIABLE = later(r"\b(?:OFI_NCCL|NCCL|RCCL)_[A-Z0-9_]+")
_NUMBERS = ("nccl/env-invalid", "tcpxo/fastrak-env-invalid")
_LISTS = {"nccl/algo-setting-invalid": ("NCCL_ALGO", "NCCL_PROTO"), "nccl/rings-invalid-old": ("NCCL_RINGS",)}


def find(facts: Facts) -> Iterator[Hit]:
    """Find NCCL's errors about numbers (src/misc/param.cc), lists (src/graph/tuning.cc) and rings, and other values."""
    for production, variables in _LISTS.items():
        if errors := facts.notices(production):
            given = facts.user_settings(*variables)
            yield Hit(errors, {"given": given}, evidence=[*first_evidence(errors), *evidence_of_settings(given, 1)])
    own = (*_NUMBERS, *_LISTS)
    if adjusted := [notice for notice in facts.errors_of_rule("setting-invalid") if notice.production not in own]:
        names = dict.fromkeys(name for notice in adjusted for name in _VARIABLE.findall(notice.message))
        yield Hit(adjusted, {"names": " ".join(names)})
    if errors := facts.notices(*_NUMBERS):
        names = dict.fromkeys(value(error, "name") for error in errors)
        numbers = [
            f"{value(error, 'name')}={value(error, 'given')} and uses its default ({value(error, 'default')})"
            for error in errors
        ]
        yield Hit(
            errors,
            {"numbers": numbers, "steps": [f"{name}=<number>   # without a unit; or unset it" for name in names]},
        )
