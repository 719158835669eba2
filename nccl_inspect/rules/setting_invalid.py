"""NCCL cannot parse or use the value of a setting."""

from nccl_inspect.judging.engine import Facts, Finding, Notice, Results, Rule, first_evidence, value
from nccl_inspect.judging.facts import as_shell, evidence_of_settings, unset_steps
from nccl_inspect.util.patterns import later
from nccl_inspect.util.wording import listed

RULE = Rule(
    name="setting-invalid",
    category="environment",
    may_cause=("call", "stage", "resource"),
    shows=("setting",),
    severity="info",
    title="A setting has a value that NCCL cannot parse or use",
    local=True,
)
_VARIABLE = later(r"\b(?:OFI_NCCL|NCCL|RCCL)_[A-Z0-9_]+")
_NUMBERS, _LIST, _RINGS = (
    ("nccl/env-invalid", "tcpxo/fastrak-env-invalid"),
    "nccl/algo-setting-invalid",
    "nccl/rings-invalid-old",
)


def judge(facts: Facts) -> Results:
    """Judge NCCL's errors about invalid numbers (src/misc/param.cc) and lists (src/graph/tuning.cc)."""
    if lists := facts.notices(_LIST):
        yield _invalid_list(facts, lists)
    if rings := facts.notices(_RINGS):
        yield _invalid_rings(facts, rings)
    own = (*_NUMBERS, _LIST, _RINGS)
    if adjusted := [notice for notice in facts.errors_of_rule(RULE.name) if notice.production not in own]:
        yield _adjusted_value(adjusted)
    errors = facts.notices(*_NUMBERS)
    if not errors:
        return
    names = dict.fromkeys(value(error, "name") for error in errors)
    yield RULE.finding(
        f"NCCL cannot parse {listed(map(_default_used, errors))}",
        cause="the setting takes a number, and the value is not one: a typo, a unit (4M) or a comment",
        impact="the setting has no effect: NCCL uses its default",
        fix=[
            *(f"{name}=<number>   # without a unit; or unset it" for name in names),
            "Also check /etc/nccl.conf and ~/.nccl.conf.",
        ],
        notices=errors,
        explains_errors=errors,
    )


def _invalid_rings(facts: Facts, errors: list[Notice]) -> Finding:
    """Up to 2.4 users could specify rings (src/misc/rings.cc)."""
    given = facts.user_settings("NCCL_RINGS")
    return RULE.finding(
        f"NCCL cannot use the rings of {as_shell(given) if given else 'NCCL_RINGS'}",
        cause="they do not contain each rank of the job once: written for another number of GPUs",
        impact="the setting has no effect: NCCL searches for rings itself",
        fix=unset_steps(given) or ["unset NCCL_RINGS"],
        notices=errors,
        evidence=[*first_evidence(errors), *evidence_of_settings(given, 1)],
    )


def _invalid_list(facts: Facts, errors: list[Notice]) -> Finding:
    """An unknown word in NCCL_ALGO or NCCL_PROTO: since 2.24 the initialization fails."""
    given = facts.user_settings("NCCL_ALGO", "NCCL_PROTO")
    named = as_shell(given) if given else "NCCL_ALGO or NCCL_PROTO"
    return RULE.finding(
        f"NCCL cannot parse {named}: {errors[0].message}",
        cause=f"{named} has a syntax error: a typo, a name that this release does not support, or a list for several "
        "collectives without their names in front",
        impact="the communicator is not created: since 2.24 NCCL stops there; earlier releases ignored such words",
        fix=[
            *(unset_steps(given) or ["unset NCCL_ALGO NCCL_PROTO"]),
            'NCCL_ALGO="ring;allreduce:tree,ring"   # syntax of a list; NCCL_PROTO likewise: LL, LL128, Simple',
        ],
        severity="error",
        notices=errors,
        evidence=[*first_evidence(errors), *evidence_of_settings(given, 1)],
        fatal=True,
    )


def _adjusted_value(notices: list[Notice]) -> Finding:
    """A value that NCCL or a plugin ignores, or replaces with the nearest one that it can use."""
    names = dict.fromkeys(name for notice in notices for name in _VARIABLE.findall(notice.message))
    return RULE.finding(
        f"a setting does not take effect: {notices[0].message}",
        cause="the value is out of range, misspelled, or not supported by this release or on this machine",
        impact="NCCL uses its default, or the nearest value that it can use",
        fix=[
            *([f"unset {' '.join(names)}   # or set a value that this release supports"] if names else []),
            "env | grep NCCL_; cat /etc/nccl.conf ~/.nccl.conf   # inside the container; a program may set it too",
        ],
        notices=notices,
        explains_errors=notices,
    )


def _default_used(notice: Notice) -> str:
    given, default = value(notice, "given"), value(notice, "default")
    return f"{value(notice, 'name')}={given} and uses its default ({default})"
