"""nccl-tests compared the results and found wrong ones."""

from nccl_inspect.bandwidth import measure
from nccl_inspect.judging.engine import Facts, Layer, Results, Rule, first_evidence, value
from nccl_inspect.judging.hardware.cuda import IS_BROKEN
from nccl_inspect.util.wording import count

RULE = Rule(
    name="wrong-results",
    category="failures",
    layer=Layer.PROGRAM,
    title="nccl-tests found wrong results",
    shows=("wrong-results",),
)


def judge(facts: Facts) -> Results:
    """Judge the test's result, which does not name the faulty link or memory."""
    wrong = facts.notices("nccl-tests/test-wrong")
    failed = sum(value(notice, "wrong_count") for notice in wrong)
    evidence = first_evidence(wrong)
    if not wrong:  # the table without its last lines
        evidence = [line for entry in measure(facts) for line in entry.wrong_lines]
        failed = len(evidence)
    if not evidence:
        return
    over_p2p = bool(facts.paths(transport="P2P"))
    yield RULE.finding(
        f"nccl-tests found wrong results: {count(failed, 'check')} failed",
        cause="unknown from this log; likely: faulty memory of a GPU or a host, a faulty link (NVLink, PCIe, a NIC) or "
        "a bug in the driver or NCCL"
        + ("; with P2P over PCIe also IOMMU or ACS, which some platforms do not tolerate" if over_p2p else ""),
        impact="data is silently corrupted: training on these machines produces garbage",
        fix=[
            IS_BROKEN,
            *(
                ["NCCL_P2P_DISABLE=1   # and run again: if the results are correct, suspect P2P between GPUs"]
                if over_p2p
                else []
            ),
            "CUDA_VISIBLE_DEVICES=0,1   # and again with -g 2, pair by pair: which GPU is always involved?",
            "dcgmi diag -r 3   # on each host: tests memory and links of the GPUs",
        ],
        ranks=facts.job.ranks_seen,
        hosts=facts.hosts(),
        evidence=evidence,
        fatal=True,
    )
