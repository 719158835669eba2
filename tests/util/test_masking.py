"""Secrets that a log tells reach no output."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import invoke

import nccl_inspect
from nccl_inspect import report
from nccl_inspect.util.secrets import masked, secrets_in

TEXTS = {
    "HF_TOKEN set by environment to hf_s3cret value.": "HF_TOKEN set by environment to ***",
    "NCCL_X_PASSWORD set to s3cret": "NCCL_X_PASSWORD set to ***",
    "NET/OFI Adding WANDB_API_KEY=s3cret to environment": "NET/OFI Adding WANDB_API_KEY=*** to environment",
    "NET/OFI Setting MY_CREDENTIALS environment variable to s3cret": "NET/OFI Setting MY_CREDENTIALS environment "
    "variable to ***",
    "AWS_SECRET_ACCESS_KEY='a s3cret' AWS_REGION=eu": "AWS_SECRET_ACCESS_KEY='***' AWS_REGION=eu",
    "PGPASSWORD=s3cret": "PGPASSWORD=***",
    "ssh_private_key: s3cret": "ssh_private_key: ***",
    '{"api_key": "s3cret", "n": 1}': '{"api_key": "***", "n": 1}',
    "serve --hf-token s3cret --model llama": "serve --hf-token *** --model llama",
    "http_proxy=http://joe:s3cret@proxy:80/x": "http_proxy=http://joe:***@proxy:80/x",
    "http://joe:s3@cret@proxy/x": "http://joe:***@proxy/x",
    "https://ghp_abcdefghijklmnopqrstuvwx@github.com/x": "https://***@github.com/x",
    "Authorization: Basic czNjcmV0": "Authorization: ***",
    "with bearer s3cret-s3cret": "with bearer ***",
}
HARMLESS = (
    "Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM",
    "max_num_tokens=8192 TOKENIZERS_PARALLELISM=false num_tokens: 5",
    'Unrecognized element token "No such device" when parsing "No such device"',
    "ncclCommSplit comm 0x1 color 0 key 1",
    "key: default_pg/0//ncclUniqueId",
    "ssh://git@host/ tcp://10.0.0.1:29500 fe80::1%eth0<4711>",
)
LOG = b"""vm:1:1 [0] NCCL INFO HF_TOKEN set by environment to s3cret
vm:1:1 [0] NCCL INFO NCCL_NET_PASSWORD set by environment to s3cret
vm:1:1 [0] NCCL INFO NET/OFI Adding WANDB_API_KEY=s3cret to environment
vm:1:1 [0] NCCL INFO NCCL_CONF_FILE set by environment to http://joe:s3cret@host/x
vm:2:2 [1] NCCL INFO HF_TOKEN set by environment to s3cret-too
vm:2:2 [1] NCCL INFO a line with password=s3cret that no release prints
vm:2:2 [1] misc/socket.cc:41 NCCL WARN token: s3cret is not what the peer expects
vm:2:2 [1]  NCCL INFO HF_TOKEN set by environment to s3cret
vm:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM
"""


@pytest.mark.parametrize("text", TEXTS)
def test_a_secret_is_hidden(text: str) -> None:
    assert masked(text) == TEXTS[text]
    assert masked(masked(text)) == TEXTS[text]
    assert secrets_in(text)


@pytest.mark.parametrize("text", HARMLESS)
def test_other_text_stays(text: str) -> None:
    assert masked(text) == text
    assert not secrets_in(text)


@pytest.mark.parametrize(
    "piece",
    ["token", "secret-", "--token-", "token='", "://a:", "bearer ", "api_key=", "password to ", "://" + "a" * 50],
)
def test_a_long_line_is_masked(piece: str) -> None:
    """In a second; with a pattern whose time is quadratic in the line, it would take many minutes."""
    assert masked(piece * (300_000 // len(piece)))


@pytest.mark.parametrize("form", report.names())
def test_no_report_tells_a_secret(form: str) -> None:
    for more in ((), ("-v",)):
        done = invoke("summarize", "--format", form, *more, data=LOG)
        assert done.stdout
        assert "s3cret" not in done.stdout + done.stderr


@pytest.mark.parametrize(
    "args",
    [
        ["annotate", "LOG"],
        ["annotate", "--only-nccl", "LOG"],
        ["check", "--learn", "--force", "LOG"],
        ["diff", "LOG", "LOG"],
    ],
)
def test_no_command_tells_a_secret(args: list[str], tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    log.write_bytes(LOG)
    words = [str(log) if word == "LOG" else word for word in args]
    done = invoke(*words)
    assert done.stdout
    assert "s3cret" not in done.stdout + done.stderr


def test_the_job_and_the_events_have_no_secret() -> None:
    job = nccl_inspect.read(LOG)
    assert "s3cret" not in repr(job)
    settings = {setting.name: setting.value for setting in job.environment}
    assert settings["HF_TOKEN"] == settings["NCCL_NET_PASSWORD"] == settings["WANDB_API_KEY"] == "***"
    events = list(nccl_inspect.events(LOG))
    assert len(events) > 4
    assert "s3cret" not in repr(events)


def test_ranks_with_different_secrets_still_differ() -> None:
    found = [setting for setting in nccl_inspect.read(LOG).environment if setting.name == "HF_TOKEN"]
    assert [setting.value for setting in found] == ["***", "***"]
