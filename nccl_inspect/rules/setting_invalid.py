"""A setting whose value NCCL cannot read."""

from collections.abc import Iterator

from nccl_inspect.model.job import Finding, Notice, NotJudged
from nccl_inspect.rules.engine import Rule
from nccl_inspect.rules.facts import Facts, first_said, hosts_in, listed, ranks_in
from nccl_inspect.rules.statements import value

RULE = Rule(
    name="setting-invalid",
    category="environment",
    severity="info",
    title="A setting has a value that NCCL cannot read",
)


def judge(facts: Facts) -> Iterator[Finding | NotJudged]:
    """Judge what NCCL says of numbers that are none (src/misc/param.cc)."""
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


def _once(said: list[Notice]) -> list[Notice]:
    return list({value(notice, "name"): notice for notice in said}.values())


def _words(notice: Notice) -> str:
    given, default = value(notice, "given"), value(notice, "default")
    return f"{value(notice, 'name')}={given} and uses its default ({default})"
