"""Paths as a table: selections answer without making a path, and what is said of kinds makes a new table."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from click.testing import CliRunner

import nccl_inspect
from nccl_inspect.cli import cli
from nccl_inspect.model.job import Paths
from nccl_inspect.model.paths.table import refined

LOG = b"".join(
    b"%s:1%d:1%d [%d] NCCL INFO Channel 00/0 : %d[%d] -> %d[%d] %s\n" % (host, src, src, src, src, src, dst, dst, way)
    for host, src, dst, way in (
        (b"a", 0, 1, b"via P2P/CUMEM"),
        (b"a", 1, 2, b"[send] via NET/IB/0/GDRDMA"),
        (b"b", 2, 3, b"via P2P/CUMEM"),
        (b"b", 3, 0, b"[send] via NET/IB/1"),
    )
)


@pytest.fixture
def paths() -> Paths:
    return nccl_inspect.read(LOG).paths


def test_a_selection_answers_like_its_paths(paths: Paths) -> None:
    net = paths.where(lambda kind: kind.transport == "NET")
    assert [(path.src, path.dst) for path in net] == list(net.values("src", "dst")) == [(1, 2), (3, 0)]
    assert net.ends() == {0, 1, 2, 3}
    assert net.hosts() == {host for path in net for host in (path.src_host, path.dst_host)}
    assert [kind.gdr for kind in net.kinds] == [True, False]
    assert [number for _, number in paths.counted()] == [2, 1, 1]
    assert next(paths.distinct("src_host", lambda kind: kind.transport)) == ("a", "P2P")
    assert net[0] is paths.between(1, 2) is paths[1]
    assert net.first_lines()[:1] == net[0].evidence
    assert len(paths.without(net)) == len(paths) - len(net) and not paths.where(lambda kind: kind.detail == "SHM")
    assert list((net | paths.first(1)).values("src")) == [(0,), (1,), (3,)]


def test_no_path_is_made_before_it_is_asked_for(paths: Paths) -> None:
    assert paths.only(("src", "dst"), lambda src, dst: src < dst).ends() and not paths.table.made
    assert paths[0] is paths[0] and len(paths.table.made) == 1


def test_a_kind_is_split_where_more_is_said_of_some_of_its_paths(paths: Paths) -> None:
    marks = [0, 0, 1, 0]
    judged = refined(paths, marks, lambda kind, mark: replace(kind, verdict="fallback" if mark else "ok"))
    assert [path.verdict for path in judged] == ["ok", "ok", "fallback", "ok"]
    assert [path.rules for path in paths] == [path.rules for path in judged]
    assert len(judged.kinds) == len(paths.kinds) + 1


def test_paths_come_back_as_they_went_in(paths: Paths) -> None:
    assert list(Paths(paths)) == list(paths)
    assert not Paths([]) and Paths([]).ends() == set() and list(Paths([]).distinct("src")) == []


def test_the_document_is_compact_in_pipes_and_has_the_fields_that_are_asked_for() -> None:
    def output(*options: str) -> str:
        return CliRunner().invoke(cli, ["summarize", "--format", "json", *options], input=LOG).output

    assert json.loads(output()) == json.loads(output("--indent"))
    assert len(output()) < len(output("--indent")) and output("--indent").startswith('{\n "schema": ')
    assert sum(line.startswith('{"src":') for line in output().splitlines()) == 4
    assert list(json.loads(output("--only", "verdict,paths"))) == ["verdict", "paths"]
    assert "did you mean paths?" in output("--only", "pahts")
    assert "are for --format json" in CliRunner().invoke(cli, ["summarize", "--indent"], input=LOG).output
