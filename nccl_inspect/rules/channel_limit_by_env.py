"""NCCL_MAX_NCHANNELS or NCCL_MAX_CTAS limits the channels."""

from nccl_inspect.judging.clouds import is_google_network, may_be_google_network
from nccl_inspect.judging.engine import Facts, Finding, Needs, Results, Rule
from nccl_inspect.judging.facts import as_shell, evidence_of_settings, unset_steps
from nccl_inspect.model.job import CommunicatorInfo, Setting
from nccl_inspect.util.wording import listed

RULE = Rule(
    name="channel-limit-by-env",
    category="environment",
    severity="warning",
    title="A setting limits the number of channels",
    may_cause=("slow", "shared-nic", "idle-nic"),
    nest_under_effect=True,
    shows=("setting",),
    supersedes=("few-channels",),
    local=True,
)
_LIMITS = ("NCCL_MAX_NCHANNELS", "NCCL_MAX_CTAS", "NCCL_MAX_NRINGS")


def judge(facts: Facts) -> Results:
    """Judge by effect: a communicator has exactly as many channels as the setting allows."""
    limits = [
        setting for setting in facts.user_settings(*_LIMITS) if setting.value.isdigit() and int(setting.value) > 0
    ]
    if not limits or is_google_network(facts):
        return
    comms = [comm for comm in facts.job.communicators if comm.channels]
    if not comms:
        yield RULE.undecided(
            f"{as_shell(limits)} is set; the log does not show the number of channels",
            Needs("the line 'coll channels' at the end of initialization"),
        )
        return
    limited = [(setting, comm) for setting in limits for comm in comms if comm.channels == int(setting.value)]
    if limited:
        yield _finding(facts, limited)


def _finding(facts: Facts, limited: list[tuple[Setting, CommunicatorInfo]]) -> Finding:
    settings = [setting for index, (setting, _) in enumerate(limited) if setting not in [s for s, _ in limited[:index]]]
    return RULE.finding(
        f"channels of {listed(comm.id for _, comm in limited)} are limited by {as_shell(settings)}",
        cause=f"{as_shell(settings)} is set in the {listed(setting.source for setting in settings)}",
        impact="fewer channels move less data in parallel: 24 are usual between GPUs connected by NVLink, and each NIC "
        "needs at least one. NCCL might not have used more by default, so measure",
        fix=[
            *unset_steps(settings),
            "--ignore channel-limit-by-env   # if it is intended, to leave more of the GPU to computation",
        ],
        confidence="possible" if may_be_google_network(facts) else "likely",
        ranks=facts.ranks_with(settings),
        hosts={host for setting in settings for host in setting.hosts},
        evidence=evidence_of_settings(settings),
    )
