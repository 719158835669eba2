"""The HTML report without a browser: what is in it, what must not be in it, and how large it is."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html import escape
from html.parser import HTMLParser
from itertools import accumulate, chain, repeat, zip_longest
from typing import Any

import large_job
import pytest
import sample_data
from wide_job import WideJob

import nccl_inspect
from nccl_inspect import report
from nccl_inspect.answers import rows as answers
from nccl_inspect.model.finding import Needs, NotJudged
from nccl_inspect.model.job import Job, Paths
from nccl_inspect.model.paths.table import Table, columns_of
from nccl_inspect.report import Style
from nccl_inspect.report import html as html_report
from nccl_inspect.report.html import pack_numbers, pack_texts

FALLBACK = "efa-provider-missing-socket-fallback"
HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'"
MARK = '"outlier"'
VOID = {"meta", "link", "input", "br"}


class Page(HTMLParser):
    """A page taken apart; it fails when elements are not closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.content: dict[str, str] = {}
        self._text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._text = ""
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag
        if tag in ("script", "style", "title"):
            name = "data" if tag == "script" and self._attributes(tag).get("type") else tag
            self.content[name] = self._text

    def handle_data(self, data: str) -> None:
        self._text += data

    def _attributes(self, tag: str) -> dict[str, str | None]:
        return next(attrs for name, attrs in reversed(self.elements) if name == tag)


def html(job: Job) -> str:
    return str(report.load("html").render(job, Style()))


def data_of(text: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(Page(text).content["data"])
    return loaded


def unpack_numbers(text: str) -> list[int]:
    """Return what ``0-packing.js`` makes of a column."""
    runs = (run.partition("*") for run in text.split())
    return list(accumulate(int(step) for step, _, times in runs for _ in range(int(times or 1))))


def large(hosts: int, **changes: int) -> Job:
    return nccl_inspect.read(large_job.log(hosts, **changes))


def hostile() -> Job:
    """Return a job in which all that comes from a log tries to become part of the page."""
    log = sample_data.contents(FALLBACK)[0].replace(b"llama-3-8b-node-0-1:", b"llama:", 3)
    log += b"llama-3-8b-node-0-0:2511:2511 [0] misc/x.cc:1 NCCL WARN " + HOSTILE.encode() + b"\n"
    log += b"llama-3-8b-node-0-0:2511:2511 [0] NCCL INFO NCCL_ALGO set by environment to " + HOSTILE.encode() + b"\n"
    job = nccl_inspect.read(log)
    for host in job.hosts:
        host.name += HOSTILE
    rows = [
        (src, dst, HOSTILE, HOSTILE, None, None, comms, kind.with_fields(nic=HOSTILE, detail=HOSTILE))
        for src, dst, comms, kind in job.paths.values("src", "dst", "communicators", "kind")
    ]
    job.paths = Paths(Table(columns_of(rows), job.paths.table.lines))
    for comm in job.communicators:
        comm.id = HOSTILE
    for finding in job.findings:
        finding.summary = finding.cause = finding.impact = HOSTILE
        finding.fix = [f"https://example.com/{HOSTILE}", HOSTILE]
    job.network.devices = [HOSTILE]
    job.not_judged = [NotJudged(HOSTILE, HOSTILE, Needs(HOSTILE))]
    return job


def test_every_sample_gives_a_sound_page() -> None:
    for name in sample_data.names():
        page = Page(html(sample_data.job(name)))
        assert not page.open, name
        assert "<" not in page.content["data"], name
        ids = [attrs["id"] for _, attrs in page.elements if "id" in attrs]
        assert len(ids) == len(set(ids)), name


def test_nothing_in_it_is_fetched() -> None:
    for page in (Page(html(hostile())), Page(html(sample_data.job(FALLBACK)))):
        for tag, attrs in page.elements:
            assert not {"src", "srcset", "poster", "background", "action", "style"} & set(attrs), tag
            assert not [name for name in attrs if name.startswith("on")]
            if tag == "link":
                assert attrs["href"] == "data:,"
        assert not re.search(r"@import|url\(", page.content["style"])
        assert not re.search(
            r"\bfetch\(|XMLHttpRequest|innerHTML|outerHTML|eval\(|insertAdjacent", page.content["script"]
        )
        assert {"object", "iframe", "embed", "img", "base"}.isdisjoint(tag for tag, _ in page.elements)


def test_the_policy_names_the_script_and_the_style() -> None:
    page = Page(html(sample_data.job(FALLBACK)))
    policy = next(attrs["content"] for tag, attrs in page.elements if tag == "meta" and "http-equiv" in attrs)
    assert policy and policy.startswith("default-src 'none';")
    for kind in ("script", "style"):
        digest = base64.b64encode(hashlib.sha256(page.content[kind].encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy


def test_text_of_the_log_stays_text() -> None:
    text = html(hostile())
    page = Page(text)
    assert [tag for tag, _ in page.elements].count("script") == 2
    assert "<img" not in text
    assert HOSTILE in json.dumps(data_of(text)).replace('\\"', '"')


def test_links_come_from_rules_only() -> None:
    job = nccl_inspect.read(sample_data.contents(FALLBACK)[0])
    job.findings[0].summary = "see https://example.com/log"
    job.findings[0].references = []
    job.findings[0].fix = ["read https://docs.example.com/a_b?c=1, then try"]
    links = [attrs["href"] for tag, attrs in Page(html(job)).elements if tag == "a"]
    assert [link for link in links if link and not link.startswith("#")] == ["https://docs.example.com/a_b?c=1"]


def test_findings_come_first_with_causes_folded_under_them() -> None:
    text = html(sample_data.job(FALLBACK))
    order = ["DEGRADED</span>", 'id="rule-socket-instead-of-efa"', 'id="rule-efa-provider-missing"', 'id="paths"']
    assert [text.index(part) for part in order] == sorted(text.index(part) for part in order)
    assert '<details class="under" id="rule-efa-provider-missing" open>' in text
    assert "job.log:26</span> <code>[2026-11-20 23:11:30]" in text or ":26</span>" in text


def test_causes_and_effects_are_told_apart() -> None:
    for sample, relation, rule in (
        (FALLBACK, "because", "efa-provider-missing"),
        ("v2.30.7-shm-4gpu", "effect", "shm-instead-of-p2p"),
        ("rank-missing-hang", "effect", "hang-in-init"),
    ):
        text = html(sample_data.job(sample))
        found = re.findall(rf'id="rule-{rule}".*?<span class="relation">(\w+)<', text, re.DOTALL)
        assert found[0] == relation, sample
    assert "likely, rank 2<" in text, "one rank is no ranks"


def test_many_nics_are_folded() -> None:
    for number, state in ((8, " open"), (33, "")):
        text = html(large(number, channels=1))
        assert re.search(rf"<details{state}><summary>\d+ NICs<", text)


def test_columns_are_packed_as_steps() -> None:
    columns: dict[str, list[int]] = {"": [], "0": [0], "3 1*2 4": [3, 4, 5, 9], "-1 0 8": [-1, -1, 7], "7 0*3": [7] * 4}
    for text, numbers in columns.items():
        assert pack_numbers(numbers) == text
        assert unpack_numbers(text) == numbers


def test_paths_have_their_kind() -> None:
    job = sample_data.job(FALLBACK)
    data = data_of(html(job))
    src, dst, kinds = (unpack_numbers(data["paths"][name]) for name in ("src", "dst", "kind"))
    assert list(zip(src, dst, strict=True)) == [(path.src, path.dst) for path in job.paths]
    assert [data["kinds"][kind]["detail"] for kind in kinds] == [path.detail for path in job.paths]


def test_texts_keep_each_digit() -> None:
    lines = ["", "no number", "00", "007 8", "7 8", "x" * 3 + "9" * 40, "9007199254740993", "1a000", "-5", "1٣ 4"]
    document = pack_texts(lines)
    rows = {
        kind: zip(*map(unpack_numbers, columns), strict=True) if columns else repeat(())
        for kind, (_, *columns) in enumerate(document["kinds"])
    }
    for line, kind in zip(lines, unpack_numbers(document["order"]), strict=True):
        numbers = map(str, next(rows[kind]))
        assert "".join(chain.from_iterable(zip_longest(document["kinds"][kind][0], numbers, fillvalue=""))) == line
    assert all(
        abs(number) < 1 << 53
        for _, *columns in document["kinds"]
        for text in columns
        for number in unpack_numbers(text)
    )


def test_rings_and_trees_have_their_ways() -> None:
    data = data_of(html(sample_data.job("socket-2node-tp4-dp2")))
    world = data["comms"][0]
    (ring,) = world["rings"]
    assert unpack_numbers(ring.pop("ranks")) == [0, 3, 2, 1, 4, 7, 6, 5]
    assert ring == {"channels": "channels 0-1", "cut": False}
    assert [tree["channels"] for tree in world["trees"]] == ["channel 0", "channel 1"]
    edges = {(a, b): world["ways"][way] for a, b, way in zip(*map(unpack_numbers, world["edges"]), strict=True)}
    assert edges[1, 4] == ["net", "NET/Socket"]
    assert edges[0, 3] == ["p2p", "P2P/CUMEM"]


def test_size_grows_with_paths_not_with_pairs() -> None:
    assert len(html(large(8, channels=16))) < 300_000


@pytest.mark.slow
def test_all_pairs_of_64_ranks_fit_into_a_megabyte() -> None:
    assert len(html(large(128))) < 1_000_000
    lines = [
        f"train-7f9c-node-{src // 8}:{4000 + src}:{4000 + src} [{src % 8}] NCCL INFO "
        f"Channel {channel:02d}/1 : {src}[{src % 8}] -> {dst}[{dst % 8}] "
        + ("via P2P/CUMEM" if src // 8 == dst // 8 else f"[send] via NET/Libfabric/{src % 8}(0)/GDRDMA/Shared")
        for src in range(64)
        for dst in range(64)
        if src != dst
        for channel in range(2)
    ]
    alive = [line for line in large_job.log(8).decode().splitlines() if "Destroy" not in line]
    job = nccl_inspect.read("\n".join([*alive, *lines]).encode())
    assert len(job.paths) == 64 * 63
    assert len(html(job)) < 1_000_000


@pytest.mark.slow
def test_a_page_of_1024_ranks_stays_below_three_megabytes() -> None:
    wide = WideJob(1024, rounds=2, no_gdr=77)
    job = nccl_inspect.read("".join(wide.lines()).encode())
    text = html(job)
    assert len(text) < 3_000_000
    data = data_of(text)
    assert [host for host, _ in data["hosts"]] == wide.hosts
    assert {host for host in wide.hosts if f"<td>{host}</td>" in text} == set(wide.hosts)
    assert set(zip(*(unpack_numbers(data["paths"][end]) for end in ("src", "dst")), strict=True)) == set(wide.truth)
    assert {finding.rule for finding in job.findings if f'id="rule-{finding.rule}"' in text} == {"gdr-one-sided"}


def test_the_page_has_the_tables_of_the_commands() -> None:
    job = sample_data.job("peer-killed")
    text = html(job)
    for asked in (answers.HOSTS, answers.NICS, answers.ENV, answers.RANKS):
        for marked, cells in html_report.answer_table(asked, job)[1]:
            row = "".join(f"<td>{escape(cell)}</td>" for cell in cells)
            assert f"<tr{' class=' * marked}{MARK * marked}>{row}</tr>" in text


def test_a_late_rank_shows_in_the_time_line() -> None:
    job = large(2, late=11)
    assert [row.rank for row in job.timeline] == list(range(16))
    row = job.timeline[11]
    assert list(row.stamps) == ["first", "started", "completed", "connected", "ended", "last"]
    assert row.stamps["started"].seconds - job.timeline[10].stamps["started"].seconds == pytest.approx(3.0003)
    told = html_report.make_timeline(job, {"": "job.log"})
    assert told is not None
    assert [row["who"] for row in told["rows"] if any(row["late"])] == ["11"]
    assert told["rows"][11]["late"] == [True, True, False, False, False]
    assert all(x + width <= html_report.WIDTH for row in told["rows"] for _, x, width in row["bars"])
    by_host = html_report.make_timeline(large(17, late=100), {})
    assert by_host is not None and by_host["by_host"]
    assert [row["who"] for row in by_host["rows"][:2]] == ["0-7", "8-15"]
    assert [row["host"] for row in by_host["rows"] if row["late"][1]] == ["train-7f9c-node-12"]
    assert 'id="timeline"' not in html(sample_data.job("p2p-nvlink-8gpu")), "it has no times"


def test_times_of_other_clocks_are_left_out() -> None:
    lines = large_job.log(1).decode().splitlines()
    mixed = [
        line.replace("[2026-11-20 ", "[2026-11-20T").replace("] train", "Z] train", 1) if ":4003:" in line else line
        for line in lines
    ]
    job = nccl_inspect.read("\n".join(mixed).encode())
    assert 3 not in [row.rank for row in job.timeline]
    assert len(job.timeline) == 7


def test_a_fragment_and_a_log_without_paths_have_pages() -> None:
    fragment = nccl_inspect.read(
        b"a:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/0/GDRDMA\n"
        b"b:2:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [receive] via NET/IB/0/GDRDMA\n"
    )
    assert data_of(html(fragment))["kinds"][0]["look"] == "gdr"
    bare = nccl_inspect.read(b"a:1:1 [0] NCCL INFO Bootstrap: Using eth0:192.0.2.2<0>\n")
    assert 'id="matrix"' not in html(bare)
