"""Lines of programs beside NCCL: a log that holds only those is read, and ordinary lines are not taken for such."""

import pytest

import nccl_inspect
from nccl_inspect.errors import NoInputError
from nccl_inspect.grammar.engine import load_grammar

# Shaped after format strings; the rules that the last words name are in the report.
LOGS = (
    ("/opt/nvshmem/src/host/init/init.cu:340: non-zero status: 7 bootstrap_init failed", "nvshmem-failed"),
    ("/x/ibrc.cpp:1429: non-zero status: 7 ep_connect failed", "nvshmem-connect-failed"),
    ("sock.c:355  UCX  ERROR connect(fd=40, dest_addr=192.0.2.1:4) failed: Refused", "ucx-failed"),
    ("E0421 11:56:59.77  709 nixl_agent.cpp:322] createBackend: unsupported backend 'UCX'", "nixl-backend-missing"),
    ("Warning  FailedScheduling  22s  scheduler  0/3 nodes are available: 3 Insufficient x.", "pod-not-started"),
    ("I1203 09:48:08.169726       1 main.go:416] No devices found. Waiting indefinitely.", "device-plugin-offers-none"),
    ("E1203 09:48:08.169726       1 main.go:455] IMEX daemon not ready: INITIALIZING", "mnnvl-imex-not-working"),
    ("node-a systemd[1]: nvidia-fabricmanager.service: Failed with result 'exit-code'.", "fabric-manager-down"),
    ("DeepEP timeout for dispatch senders, rank 3, responsible_channel = 12", "deepep-failed"),
    ("[E421 02:05:38.7 ProcessGroupGloo.cpp:143] Gloo connectFullMesh failed with [x.cc:1] no", "gloo-not-connected"),
    ("ERR:  error opening driver (errno=2/No such file or directory)", "gdrcopy-failed"),
    ("GPU 3 has fallen off the bus", "gpu-hardware-error"),
    (
        "/opt/nvshmem/src/modules/bootstrap/pmix/bootstrap_pmix.c:74: non-zero status: 7 PMIx_Fence failed",
        "nvshmem-failed",
    ),
    ("n:1:1 [0] /x/topo.cpp:7 NVSHMEM WARN PE 3 has no peer NIC", "nvshmem-degraded"),
    ("W0421 11:56:59.77  709 libfabric_topology.cpp:90] hwloc finds no NIC", "kv-transfer-degraded"),
    ("W0325 09:33:41.55  82 config.cpp:96] Ignore value from environment variable MC_IB_TC", "kv-transfer-degraded"),
    ("E0325 09:33:41.55  82 mnnvl_transport.cpp:7] cannot import a handle", "kv-transfer-failed"),
    ("[6.5] mlx5_core 0000:61:00.0: poll_health:800:(pid 0): device's health compromised", "nic-driver-error"),
    ("[6.5] NVRM: memFabric_IMPL: Inband request Multicast Team Setup failed!", "fabric-manager-down"),
    ("ERROR 03-22 18:40:47 [x/lmcache_connector.py:9] lost the peer", "kv-transfer-failed"),
    ("2026-02-11 10:20:31 MSCCLPP 21763 WARN NET ib.cc:120 mlx5_3:1 is not active", "mscclpp-failed"),
    ("  what():  TcpBootstrap connection timeout (mscclpp failure: Timeout)", "mscclpp-failed"),
)
ORDINARY = """\
2026-03-05 08:07:13 INFO Starting server on port 8080
WARN: device cuda:0 is busy, waiting
ERROR: could not open file foo.txt
Warning  the valve is open
I1203 09:48:08.169726       1 main.go:416] Listening on :8080
E1203 09:48:08.169726       1 server.go:416] failed to serve request: context canceled
[2026-11-03 18:11:28] epoch 3 loss 2.1
Detected 3 objects for GPU benchmark
[node-a:100] Session abc expired.
Failed to load model weights from /models/x.safetensors
Assertion failed: x > 0
Custom allreduce is great
Backend redis was selected
[INFO] [tid 5] started
provider: aws
Only 5 items are up out of the expected 6
Node #0 - ready
  what():  vector::_M_range_check
[12:00:01] [main.cpp:45] hello
kernel: usb 1-1: new device
UCX is a communication library; NVSHMEM is another.
DeepEP is fast. NIXL is available on the index.
Failed: could not compile kernel
E1203 09:48:08.169726       1 server.go:41] Marking device offline; GRPC server for x is unable to restart server y
ERR:  mh is high; Temperature 70 of sampling is high; gdrdrv is a module
W0325 09:33:41.55  82 config.cpp:96] Ignore value from environment variable FOO
mlx5_core 0000:61:00.0: firmware version: 28.39.1002
"""


def test_a_log_of_a_neighbour_alone_leads_to_a_rule() -> None:
    found = {line: [finding.rule for finding in nccl_inspect.read(line.encode() + b"\n").findings] for line, _ in LOGS}
    missed = {line: (rule, found[line]) for line, rule in LOGS if rule not in found[line]}
    assert not missed


def test_a_page_of_ordinary_lines_is_no_log() -> None:
    taken = [line for line in ORDINARY.splitlines() if load_grammar().parse_foreign(line.encode())]
    assert not taken
    with pytest.raises(NoInputError, match="no NCCL line among"):
        nccl_inspect.read(ORDINARY.encode())
