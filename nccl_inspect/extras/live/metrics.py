"""The metrics of a watch for Prometheus: served over HTTP, or in a file for the node exporter's textfile collector."""

from __future__ import annotations

import re
import socket
import threading
import time
from http.server import ThreadingHTTPServer
from typing import Self

from nccl_inspect.errors import NcclInspectError
from nccl_inspect.extras.live.watch import Watch
from nccl_inspect.report import prometheus
from nccl_inspect.util import atomic_files

_ADDRESS = re.compile(r"(?:(?P<host>\[[0-9a-fA-F:.]+\]|[\w.-]*):)?(?P<port>\d{1,5})")
_OPTION = "--metrics"
_REBUILT = 1.0
"""Seconds between two sets of metrics that are served: those of a large job take some time to make."""


class Meter:
    """Publishes metrics: nowhere, unless a subclass says where."""

    def __enter__(self) -> Self:
        """Begin; the first metrics are there at once."""
        return self

    def __exit__(self, *_: object) -> None:
        """End."""

    def update(self, watch: Watch, is_news: bool = False, runs: bool = True) -> str:
        """Take the metrics of a watch.

        Args:
            runs: whether it continues.

        Returns:
            What is wrong since the last time, for a watch is worth more than its metrics; empty when all is well.

        Raises:
            NcclInspectError: the first ones cannot be published.
        """
        return ""


def meter(target: str | None, seconds: float) -> Meter:
    """Return what publishes metrics: on a port, on ``ADDRESS:PORT``, or else in a file, written every ``seconds``.

    Raises:
        NcclInspectError: the port or the file cannot be used.
    """
    if target is None:
        return Meter()
    match = _ADDRESS.fullmatch(target)
    if match is None:
        return _InFile(target, seconds)
    host = "127.0.0.1" if match["host"] is None else match["host"].strip("[]")
    return _Served(target, host, int(match["port"]))


def metrics(watch: Watch, runs: bool) -> prometheus.Metrics:
    """Return the metrics of a watch: those of the job since its first verdict, and how the watch goes."""
    status, job = watch.status(), watch.last_report
    if job:
        made = prometheus.collect_metrics(job)
    else:  # what is known of a job that begins: its findings may be those of a moment
        made = prometheus.Metrics()
        made.verdict("unknown")
        if status.world_size is not None:
            made.add("world_size", prometheus.WORLD_SIZE, (), [((), status.world_size)])
        made.add("ranks_seen", prometheus.RANKS_SEEN, (), [((), status.ranks)])
    made.add("watch_running", "1 while the log is watched, 0 after its end.", (), [((), runs)])
    made.add("watch_told", "1 since the first verdict: before it there are no findings.", (), [((), bool(job))])
    made.add("watch_seconds", "How long the log was watched.", (), [((), status.seconds)])
    made.add("watch_stalled", "1 while a communicator makes no progress.", (), [((), status.stalled)])
    lines = [(("all",), status.lines), (("nccl",), status.nccl_lines)]
    made.add("watch_lines", "Lines read until now.", ("kind",), lines)
    comms = [(("complete",), status.complete), (("incomplete",), status.communicators - status.complete)]
    made.add("watch_communicators", "Communicators that began, by whether all ranks finished.", ("state",), comms)
    fed = time.monotonic() - status.quiet
    made.add_function(
        "watch_quiet_seconds", "Seconds since the last line.", lambda: time.monotonic() - fed if runs else status.quiet
    )
    return made


class _InFile(Meter):
    """A file that is whole at any moment."""

    def __init__(self, target: str, seconds: float) -> None:
        self._target = target
        self._seconds = seconds
        self._next = 0.0
        self._problem: str | None = None
        """That of the last time; None before the first."""

    def update(self, watch: Watch, is_news: bool = False, runs: bool = True) -> str:
        """Write the file when it is time for that, when there are news, and at the end."""
        now = time.monotonic()
        if not (is_news or not runs or now >= self._next):
            return ""
        self._next = now + self._seconds
        try:
            atomic_files.write_lines(self._target, _OPTION, metrics(watch, runs).text().splitlines())
        except NcclInspectError as error:
            if self._problem is None:
                raise
            news, self._problem = str(error) if str(error) != self._problem else "", str(error)
            return news
        self._problem = ""
        return ""


class _Served(Meter):
    """A server that answers with what is known now; no request waits for the job to be judged."""

    def __init__(self, target: str, host: str, port: int) -> None:
        from prometheus_client import MetricsHandler

        self._next = 0.0
        self._handler = MetricsHandler.factory(prometheus.Metrics().registry)

        class Server(ThreadingHTTPServer):
            """Leaves no thread behind."""

            daemon_threads = True
            address_family = socket.AF_INET6 if ":" in host else socket.AF_INET

        try:
            self._server = Server((host, port), self._handler)
        except (OSError, OverflowError) as error:
            why = getattr(error, "strerror", None) or error
            raise NcclInspectError(f"{_OPTION} {target}: {why}", "choose another port or address") from None
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def update(self, watch: Watch, is_news: bool = False, runs: bool = True) -> str:
        """Answer with these from now on."""
        now = time.monotonic()
        if is_news or not runs or now >= self._next:
            self._next = now + _REBUILT
            self._handler.registry = metrics(watch, runs).registry  # type: ignore[attr-defined]
        return ""
