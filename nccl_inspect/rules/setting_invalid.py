"""A setting whose value NCCL cannot read."""

from collections.abc import Iterator

from nccl_inspect.model.finding import Finding, NotJudged
from nccl_inspect.model.job import Notice
from nccl_inspect.rules.engine import Rule
from nccl_inspect.rules.facts import Facts, first_said, hosts_in, lines_of, listed, ranks_in, unset, words_of
from nccl_inspect.rules.statements import value

RULE = Rule(
    name="setting-invalid",
    category="environment",
    severity="info",
    title="A setting has a value that NCCL cannot read",
    local=True,
)


def judge(facts: Facts) -> Iterator[Finding | NotJudged]:
    """Judge what NCCL says of numbers that are none (src/misc/param.cc), and of lists (src/graph/tuning.cc)."""
    if lists := facts.notices("algo-setting-invalid"):
        yield _not_a_list(facts, lists)
    said = facts.notices("env-invalid")
    if not said:
        return
    facts.pass_over(said)
    yield RULE.finding(
        f"NCCL cannot read {listed(map(_words, said))}",
        cause="the value is not a number, and NCCL takes numbers only for it: a typing error, a unit (4M) or a comment",
        impact="the setting does nothing: NCCL goes on with its default",
        fix=[
            *(f"{value(notice, 'name')}=<number>   # without unit; or unset it" for notice in _once(said)),
            "Look at /etc/nccl.conf and ~/.nccl.conf as well.",
        ],
        ranks=ranks_in(said),
        hosts=hosts_in(said),
        evidence=first_said(said),
    )


def _not_a_list(facts: Facts, said: list[Notice]) -> Finding:
    """A word in NCCL_ALGO or NCCL_PROTO that NCCL does not know: since 2.24 the initialisation fails for it."""
    given = facts.chosen("NCCL_ALGO", "NCCL_PROTO")
    named = words_of(given) if given else "NCCL_ALGO or NCCL_PROTO"
    return RULE.finding(
        f"NCCL cannot read {named}: {said[0].message}",
        cause=f"{named} is not written as NCCL wants it: a typing error, a name that this release does not know, or a "
        "list for several collectives without the name in front of each",
        impact="the communicator is not built: since 2.24 NCCL stops there, releases before passed over such words",
        fix=[
            *(unset(given) or ["unset NCCL_ALGO NCCL_PROTO"]),
            'NCCL_ALGO="ring;allreduce:tree,ring"   # how a list is written; NCCL_PROTO likewise: LL, LL128, Simple',
        ],
        severity="error",
        ranks=ranks_in(said),
        hosts=hosts_in(said),
        evidence=[*first_said(said), *lines_of(given, 1)],
        fatal=True,
    )


def _once(said: list[Notice]) -> list[Notice]:
    return list({value(notice, "name"): notice for notice in said}.values())


def _words(notice: Notice) -> str:
    given, default = value(notice, "given"), value(notice, "default")
    return f"{value(notice, 'name')}={given} and uses its default ({default})"
