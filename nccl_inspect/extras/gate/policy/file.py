"""Policy files: TOML tables to expectations. :data:`EXAMPLE` shows every key."""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any

from nccl_inspect.errors import suggestion
from nccl_inspect.extras.gate.policy import Expectation, Policy, expectations, ways
from nccl_inspect.model.versions import order
from nccl_inspect.util.toml import Table, load

EXAMPLE = """\
world_size = 16
hosts = 2
min_channels = 8                  # of the communicator of all ranks
max_severity = "info"             # findings above it break the policy: none, info, warning, error
max_unrecognised_lines = 0        # NCCL lines that the grammar does not know
max_damaged_lines = 0             # torn lines that could not be repaired

[versions]
nccl = ["2.27.*", "2.28.9"]       # one of these; globs
nccl_min = "2.27.3"               # or: not older
plugin_min = "1.14.0"             # of the network plugin; plugin = [...] likewise
cuda = "13.*"                     # of the driver; cuda_min = "12.8" likewise

[network]
name = ["AWS Libfabric", "Libfabric"]
provider = "efa"

[paths.intra]                     # within a host
transport = ["P2P"]               # transports, or details with globs: "P2P/CUMEM*"
min_channels = 2                  # of each pair

[paths.inter]                     # between hosts
transport = ["NET/*Libfabric"]
gdr = true                        # GPUDirect RDMA on every network path
min_channels = 2

[environment]
forbidden = ["NCCL_P2P_DISABLE=1", "NCCL_IB_*"]       # NAME or NAME=VALUE; globs
required = ["NCCL_SOCKET_IFNAME=eth*"]
"""
"""A policy with every key."""
SCOPES = ("intra", "inter")
_TRANSPORTS = ("P2P", "SHM", "NET", "COLLNET")
_OLD_DETAIL = "DIRECT SHARED MEMORY"
"""How NCCL calls SHM until 2.12."""
_LIMITS = ("none", "info", "warning", "error")


def read(path: str) -> Policy:
    """The policy of a file.

    Raises:
        NcclInspectError: it cannot be read, says something that is not understood, or says nothing.
    """
    return _policy(path, load(Path(path), "--policy"))


def of_values(values: dict[str, Any]) -> Policy:
    """The policy that a program states: the keys of a file as a dictionary.

    Raises:
        NcclInspectError: it says something that is not understood, or nothing.
    """
    return _policy("the policy", Table("the policy", values))


def _policy(name: str, table: Table) -> Policy:
    expectations = [*_job(table), *_versions(table.table("versions")), *_network(table.table("network"))]
    paths = table.table("paths")
    for scope in SCOPES:
        expectations += _paths(scope, paths.table(scope))
    paths.close()
    expectations += _environment(table.table("environment"))
    table.close()
    if not expectations:
        raise table.error("no expectation", "write one from a good log: nccl-inspect check --learn good.log")
    return Policy(name, expectations)


def _job(table: Table) -> Iterator[Expectation]:
    for key, words, ask in (
        ("world_size", "{}", expectations.world_size),
        ("hosts", "{}", expectations.hosts),
        ("min_channels", "at least {}", expectations.min_channels),
        ("max_unrecognised_lines", "at most {}", expectations.max_unrecognised_lines),
        ("max_damaged_lines", "at most {}", expectations.max_damaged_lines),
    ):
        if (number := table.number(key)) is not None:
            yield Expectation(key, words.format(number), partial(ask, number))
    if limit := table.text("max_severity", _LIMITS):
        words = "no finding" if limit == "none" else f"no finding above {limit}"
        yield Expectation("max_severity", words, partial(expectations.max_severity, limit))


def _versions(table: Table) -> Iterator[Expectation]:
    for what in ("nccl", "plugin", "cuda"):
        allowed, least = table.texts(what), table.text(f"{what}_min")
        if least is not None and not order(least):
            raise table.error(f"{what}_min is '{least}', which is not a version", f'write {what}_min = "2.27.3"')
        words = [*([_either(allowed)] if allowed else []), *([f"{least} or later"] if least else [])]
        if words:
            ask = partial(expectations.version, what, allowed, least)
            yield Expectation(f"versions.{what}", ", ".join(words), ask)
    table.close()


def _network(table: Table) -> Iterator[Expectation]:
    for key in ("name", "provider"):
        if allowed := table.texts(key):
            yield Expectation(f"network.{key}", _either(allowed), partial(expectations.network, key, allowed))
    table.close()


def _paths(scope: str, table: Table) -> Iterator[Expectation]:
    key = f"paths.{scope}"
    if allowed := table.texts("transport"):
        for pattern in allowed:
            _check_transport(table, pattern)
        yield Expectation(f"{key}.transport", _either(allowed), partial(ways.transport, scope, allowed))
    if table.flag("gdr"):
        yield Expectation(f"{key}.gdr", "GPUDirect RDMA", partial(ways.gdr, scope))
    if (number := table.number("min_channels")) is not None:
        words = f"at least {number} for each pair"
        yield Expectation(f"{key}.min_channels", words, partial(ways.min_channels, scope, number))
    table.close()


def _check_transport(table: Table, pattern: str) -> None:
    """A typing error would let no path pass."""
    if unknown := unknown_transport(pattern):
        raise table.error(*unknown)


def unknown_transport(pattern: str) -> tuple[str, str] | None:
    """Return what is wrong with a transport or a glob of details that can fit no path, and what to do.

    None for a good one.
    """
    kind = pattern.upper().partition("/")[0]
    if any(fnmatchcase(name, kind) for name in (*_TRANSPORTS, _OLD_DETAIL)):
        return None
    hint = suggestion(kind, _TRANSPORTS) or f"known are {', '.join(_TRANSPORTS)}; a detail is such as P2P/CUMEM*"
    return f"no transport '{pattern}'", hint


def _environment(table: Table) -> Iterator[Expectation]:
    for key, ask in (("forbidden", expectations.forbidden), ("required", expectations.required)):
        for entry in table.texts(key):
            name, equals, value = entry.partition("=")
            if not name.strip():
                raise table.error(f"{key} has '{entry}', which has no variable name", "write NAME or NAME=VALUE")
            words = f"not {entry}" if key == "forbidden" else entry
            yield Expectation(f"environment.{key}", words, partial(ask, name.strip(), value if equals else None))
    table.close()


def _either(words: tuple[str, ...]) -> str:
    return " or ".join(words)
