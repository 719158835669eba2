"""What ``docker inspect`` (or ``podman inspect``) says of containers."""

from __future__ import annotations

import math

from nccl_inspect.artifacts import located
from nccl_inspect.artifacts.containers import DEFAULT_SHM, Container, Ended, Pod, variables
from nccl_inspect.artifacts.located import ABSENT, Node
from nccl_inspect.artifacts.manifest import Manifest

KIND = "docker inspect"
_KEYS = (b'"Id"', b'"HostConfig"', b'"Config"')


def recognises(_name: str, head: bytes) -> bool:
    """Return whether a file is what docker says of containers."""
    return all(key in head for key in _KEYS) and located.is_json(head) and head.lstrip()[:1] in (b"[", b"{")


def read(name: str, data: bytes) -> Manifest:
    """Return what is said of each container.

    Raises:
        ValueError: it is not JSON, or says nothing of containers.
    """
    items = [item for document in located.documents(data) for item in (document, *document.elements)]
    pods = [_pod(item, name) for item in items if item.at("HostConfig")]
    if not pods:
        raise ValueError("it describes no container")
    return Manifest(name, pods)


def _pod(item: Node, file: str) -> Pod:
    host, state = item.at("HostConfig"), item.at("State")
    memlock = next((entry for entry in host.at("Ulimits").elements if entry.word("Name") == "memlock"), ABSENT)
    soft, code, ended = memlock.number("Soft"), state.number("ExitCode"), []
    if code and not state.is_true("Running"):
        is_killed, when = state.is_true("OOMKilled"), state.word("FinishedAt")
        reason, line = "OOMKilled" if is_killed else "Error", state.at("OOMKilled" if is_killed else "ExitCode").line
        text = f"{reason}, ExitCode {code}, FinishedAt {when or '?'}"
        ended.append(Ended(reason, code, line, "State", text, when))
    name = item.word("Name").lstrip("/") or item.word("Id")[:12]
    is_shared = host.word("IpcMode") == "host"
    requests = host.at("DeviceRequests").elements
    gpus = sum(len(request.at("DeviceIDs").elements) or request.number("Count") or 0 for request in requests)
    env = [((entry.text or "").partition("="), entry.line) for entry in item.at("Config", "Env").elements]
    container = Container(
        name=name,
        path="HostConfig",
        line=host.line,
        image=item.word("Config", "Image"),
        resources={"nvidia.com/gpu": str(gpus)} if gpus > 0 else {},  # all of them have no number
        privileged=host.is_true("Privileged"),
        capabilities=frozenset(word.upper().removeprefix("CAP_") for word in host.words("CapAdd")),
        shm=math.inf if is_shared else float(host.number("ShmSize") or DEFAULT_SHM),
        shm_line=host.at("ShmSize").line or host.line,
        devices=tuple(device.word("PathOnHost") for device in host.at("Devices").elements),
        memlock=None if soft is None else math.inf if soft < 0 else float(soft),
        env=variables(((name, value, line) for (name, _, value), line in env), f"container {name}"),
    )
    return Pod(
        file=file,
        kind="container",
        name=name,
        path="HostConfig",
        line=host.line,
        containers=[container],
        host_ipc=is_shared,
        host_network=host.word("NetworkMode") == "host",
        networks="" if host.word("NetworkMode") in ("default", "bridge", "") else host.word("NetworkMode"),
        hostname=item.word("Config", "Hostname"),
        ended=ended,
    )
