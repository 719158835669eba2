"""``anonymize`` learns names: hosts in lists, addresses, and in time that grows with the log."""

from __future__ import annotations

import re

import pytest
from anonymized_logs import anonymized
from call_count import calls

from nccl_inspect.anonymous import hostlists
from nccl_inspect.anonymous.learning import Learned

HEAD = "gpu-a17:11:11 [0] NCCL INFO cudaDriverVersion 13000\n"


@pytest.mark.parametrize(
    "piece",
    [
        "a-",
        "a/",
        "/a",
        "a@",
        "a.",
        "a=",
        "a:b ",
        "' : '",
        "--a ",
        "srun -A ",
        "image a/",
        "a[1",
        "a[1-",
        "a[1]",
        "nodes=a,",
    ],
)
def test_a_line_of_any_length_is_learned(piece: str) -> None:
    """In less than a second; with a pattern whose time is quadratic in the line, it would take many minutes."""
    Learned().learn((piece * 200_000).encode())


def test_settling_is_work_that_is_linear() -> None:
    letters = "abcdefghijklmnopqrstuvwxyz"

    def work(count: int) -> int:
        numbered = [
            (number, "".join(letters[number // 26**place % 26] for place in range(4))) for number in range(count)
        ]
        log = "".join(f"SLURM_NODELIST=q{name}zk[1-4] host=gq{name}-{number}\n" for number, name in numbered)
        return calls(lambda: anonymized((HEAD + log).encode()))

    assert work(2_000) < 5 * work(500)


@pytest.mark.parametrize(
    "front", ["", "user=", "user: ", "USER ", "for ", "on ", "node=", "--mail-user=", "(", "host:"]
)
def test_an_address_of_mail_goes_whatever_stands_before_it(front: str) -> None:
    made = anonymized(f"{HEAD}{front}jane.doe@mail.zenithcorp.com\n".encode())[1][0].splitlines()[1].decode()
    assert made == f"{front}user-1@mail.invalid"


HOSTS = ["gpu-a17", "gpu-a18", "gpu-a19", "gpu-b02", "gpu-b03"]
LISTS = [
    "SLURM_JOB_NODELIST=gpu-a[17-19],gpu-b[02-03]",
    "SLURM_STEP_NODELIST=gpu-a[17,19]",
    "SLURM_JOB_NODELIST=gpu-[a17-a19,b02]",
    "SLURM_NODELIST=gpu-a17,gpu-a18,gpu-b02",
    '  "SLURM_NODELIST": "gpu-a[17-19]",',
    "   NodeList=gpu-a[17-19] BatchHost=gpu-a17",
    "srun: job 4711 nodes gpu-a[17-19]",
    "srun: error: gpu-a[17-18]: tasks 0-15: Killed",
    "4711 debug train R 1:00 3 gpu-a[17-19]",
    "+ srun -w gpu-a[17-19] ./train",
    "+ srun --nodelist=gpu-b[02-03] ./train",
    "+ mpirun -np 16 -H gpu-a17:8,gpu-a18:8 ./train",
    "+ mpirun --host gpu-a17,gpu-b02 -x NCCL_DEBUG=INFO ./train",
    "+ pdsh -w gpu-a[17-19] uptime",
    "gpu-b03 slots=8 max_slots=8",
    'LSB_HOSTS="gpu-a17 gpu-a17 gpu-b02"',
    'LSB_MCPU_HOSTS="gpu-a17 8 gpu-b02 8"',
    "NODE gpu-a[17-19] in GPU-A17 and gpu-a18-ib0",
]


@pytest.mark.parametrize("line", LISTS)
@pytest.mark.parametrize("known", [[], HOSTS[:1], HOSTS])
def test_no_host_is_left_in_a_list(line: str, known: list[str]) -> None:
    heads = "".join(f"{name}:1:1 [0] NCCL INFO cudaDriverVersion 13000\n" for name in (known or ["other-x9"]))
    made = anonymized(f"{heads}{line}\n".encode())[1][0].decode()
    stated = known or not re.match(r"4711|srun: error|NODE", line)
    if stated:
        assert not re.search(r"(?i)gpu-|[ab]?\b(?:17|18|19|02|03)\b(?!:)", made)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("gpu-a[17-18]", "gpu-a17 gpu-a18"),
        ("gpu-[a1-a3,b2]", "gpu-a1 gpu-a2 gpu-a3 gpu-b2"),
        ("n[008-010]", "n008 n009 n010"),
        ("r[1-2]n[1,3]-ib", "r1n1-ib r1n3-ib r2n1-ib r2n3-ib"),
        ("a1:8,b[1-2],c3", "a1 b1 b2 c3"),
        ("n[1-9/4]", "n1 n5 n9"),
        ("n[1-100000000]", "n[1-100000000]"),
        ("n[1-999999999999999999999999]", "n1-999999999999999999999999"),
    ],
)
def test_a_host_list_stands_for_its_hosts(text: str, names: str) -> None:
    assert [*hostlists.hosts(text)] == names.split()


def test_a_list_of_hosts_is_as_short_afterwards() -> None:
    heads = "".join(f"gpu-a{n:03}:1:1 [0] NCCL INFO cudaDriverVersion 13000\n" for n in range(1, 21))
    made = anonymized(f"{heads}SLURM_JOB_NODELIST=gpu-a[001-010,012]\n".encode())[1][0].decode()
    assert made.endswith("SLURM_JOB_NODELIST=host-[01-10,12]\n")


def test_what_only_looks_like_a_list_of_hosts_stays() -> None:
    line = "rank[0-3] uses mlx5_[0-7], sizes[0,1] and x[0] of NCCL_P2P[1-2]"
    assert anonymized(f"{HEAD}{line}\n".encode())[1][0].decode().splitlines()[1] == line


@pytest.mark.parametrize(
    ("line", "made"),
    [
        ("wandb_api_key 0123456789abcdef0123456789abcdef01234567", "wandb_api_key redacted-1"),
        ("WANDB_API_KEY abcdef0123456789abcdef0123456789abcdef01", "WANDB_API_KEY redacted-1"),
        ("access_token zenith0123456789", "access_token redacted-1"),
        ("the secret key of zone 7 is missing", "the secret key of zone 7 is missing"),
        ("123456789012.dkr.ecr.us-east-1.amazonaws.com/zenithcorp/llm:1", "site-1.invalid/name-2/name-1:1"),
        ("123456789012.dkr.ecr.us-east-1.amazonaws.com/zenithcorp", "site-1.invalid/dir-1"),
        ("image zenithcr.azurecr.io/orionx/llm", "image site-1.invalid/dir-1/dir-2"),
        ("nvcr.io/nvidia/pytorch:24.05-py3", "nvcr.io/nvidia/pytorch:24.05-py3"),
        ("see github.com/NVIDIA/nccl/issues", "see github.com/NVIDIA/nccl/issues"),
        ("org=zenithcorp on zenithcorp0 by libzenithcorp", "org=name-1 on name-1x0 by libname-1"),
        ("org=zenithcorp\nNCCL_SOCKET_IFNAME=zenithcorp0,eth0", "org=name-1\nNCCL_SOCKET_IFNAME=name-1x0,eth0"),
    ],
)
def test_what_goes_and_what_stays_of_a_line(line: str, made: str) -> None:
    assert anonymized(f"{HEAD}{line}\n".encode())[1][0].decode().splitlines()[1:] == made.splitlines()
