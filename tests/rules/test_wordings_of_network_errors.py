"""An error of NET/IB leads to the same findings in each wording that NCCL has for it, old and new."""

import nccl_inspect

_INIT = "NCCL INFO ncclCommInitRank comm 0x1 rank {rank} nranks 2 cudaDev 0 nvmlDev 0 busId 60 commId 0x9 - Init"
_JOB = f"""\
node-a:10:10 [0] NCCL INFO Using network IB
node-a:10:10 [0] {_INIT.format(rank=0)} START
node-b:20:20 [0] {_INIT.format(rank=1)} START
node-a:10:10 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/0/GDRDMA
node-b:20:20 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [receive] via NET/IB/0/GDRDMA
node-a:10:10 [0] {_INIT.format(rank=0)} COMPLETE
node-b:20:20 [0] {_INIT.format(rank=1)} COMPLETE
"""
_STATUSES = {1: "LOC_LEN", 5: "WR_FLUSH", 10: "REM_ACCESS", 12: "RETRY_EXC", 13: "RNR_RETRY_EXC", 21: "GENERAL"}
_GIDS = "localGid ::ffff:10.0.0.1 remoteGid"
_CQE = "(devIndex=0, req=0x7f01a0, comm=0x7f02a0 (send), wr_id=5, qp_num=7)"
_NAMED = "NET/IB: Got completion from peer 10.0.0.2<4> with status={name}({status}) opcode=IBV_WC_SEND(0)"
_COMPLETIONS = {
    "2.4": "NET/IB : Got completion with error {status}, opcode 0, len 0, vendor err 129",
    "2.20": "NET/IB : Got completion from peer 10.0.0.2<4> with error {status}, opcode 0, len 0, vendor err 129 (Send) "
    + f"{_GIDS} ::ffff:10.0.0.2",
    "2.28.3": "NET/IB: Got completion from peer 10.0.0.2<4> with status={status} opcode=0 len=0 vendor err 129 (Send) "
    + f"{_GIDS}s::ffff:10.0.0.2 hca mlx5_0",
    "2.28.9": f"{_NAMED} reqSize=1 vendor_err=129 req_type=Send {_GIDS}s::ffff:10.0.0.2 hca mlx5_0",
    "2.29.7, RoCE": f"NET/IB: ncclIbTest: Got CQE with error {_CQE}\n"
    + f"{_NAMED} vendor_err=129  {_GIDS}s::ffff:10.0.0.2 hca mlx5_0",
    "2.30.7, InfiniBand": f"NET/IB: Got CQE with error {_CQE}\n{_NAMED} vendor_err=129  hca mlx5_0",
    "2.30.7, the second line": f"{_NAMED} vendor_err=129  hca mlx5_0",
    "2.30.7, failover": "NET/IB: ncclIbTest: Unsupported completion status {name} ({status})",
}
_EVENTS = {
    **dict.fromkeys(("port error", "LID change", "client reregistration"), ("",)),
    **dict.fromkeys(("local catastrophic error", "CQ error", "invalid request local work queue error"), ("", "fatal")),
}
_ASYNC = {
    "": ("Got async event : {event}", "Got async event: {event}", "Got async error event: {event}"),
    "fatal": (
        "async fatal event on QP (0x7f01a0) qpn=3 handle=3 send_cq=3 recv_cq=3 state=3 sq_psn=3 rq_psn=3: {event}",
    ),
}
_NUMBERS = {
    "Call to ibv_modify_qp failed with error {}": (
        "Connection timed out",
        "Connection timed out errno 110",
        "-110",
        "110",
    ),
    "socketStartConnect: Connect to 10.0.0.2<4> failed : {}": ("Connection refused", "111", "errno 111", "error -111"),
    "Call to ibv_reg_mr failed with error {}": ("Bad address", "Bad address errno 14", "-14", "Unknown error 14"),
}


def _findings(messages: str) -> list[tuple[str, str]]:
    lines = "".join(f"node-a:10:30 [0] net_ib.cc:1 NCCL WARN {message}\n" for message in messages.split("\n"))
    job = nccl_inspect.read((_JOB + lines).encode())
    return [(finding.rule, finding.severity) for finding in job.findings] or [(job.verdict, "no finding")]


def test_each_status_and_event_leads_where_its_oldest_wording_leads() -> None:
    cases = {
        name: [text.format(status=status, name=f"IBV_WC_{name}_ERR") for text in _COMPLETIONS.values()]
        for status, name in _STATUSES.items()
    }
    for event, kinds in _EVENTS.items():
        wordings = (wording for kind in kinds for wording in _ASYNC[kind])
        cases[event] = [f"NET/IB : mlx5_0:1 {wording.format(event=event)}" for wording in wordings]
    cases |= {text: [text.format(error) for error in errors] for text, errors in _NUMBERS.items()}
    wrong = []
    for name, texts in cases.items():
        expected, *others = map(_findings, texts)
        wrong += [f"{name}: {text}: {got}" for text, got in zip(texts[1:], others, strict=True) if got != expected]
        wrong += [f"{name}: no finding"] if expected[0][1] == "no finding" else []
    assert not wrong, "nccl_inspect/grammar/dialects/nccl/warnings-ib.grammar:\n" + "\n".join(wrong)
