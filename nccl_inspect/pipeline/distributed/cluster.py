"""The connection to a Dask cluster, and whether its machines can do what this process would do."""

from __future__ import annotations

import json
import logging
import pkgutil
import platform
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

from nccl_inspect._version import __version__
from nccl_inspect.errors import NcclInspectError

if TYPE_CHECKING:
    from distributed import Client

_GRACE = 2.0
"""Seconds on top of Dask's own limit, which does not hold for a server that accepts and then says nothing."""
_ALONE = 300.0
"""Seconds to wait for a worker to come."""
_MAX_WORDS = 200


@contextmanager
def connected(address: str) -> Iterator[Client]:
    """A client of the cluster; what it had the cluster do is given up when it is left.

    Args:
        address: ``tcp://host:8786``, ``host:8786`` or the path of a scheduler file.

    Raises:
        NcclInspectError: Dask is not installed, the cluster cannot be reached, or is of another version.
    """
    try:
        import distributed  # noqa: F401 - to know that it is there
    except ImportError:
        hint = "pip install 'nccl-inspect[dask]'"
        raise NcclInspectError("--cluster needs Dask, which is not installed", hint) from None
    with _quiet():
        client = _client(address)
        try:
            check_versions(partial(_answers, client))
            yield client
        finally:
            with suppress(Exception):
                client.close()


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep Dask from logging what is reported as an error or handled."""
    loggers = [logging.getLogger(name) for name in ("distributed", "distributed.client", "asyncio")]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)


def _client(address: str) -> Client:
    import dask
    from dask.utils import parse_timedelta

    limit = parse_timedelta(dask.config.get("distributed.comm.timeouts.connect"))
    made: SimpleQueue[Client | Exception] = SimpleQueue()
    threading.Thread(target=_connect, args=(address, limit, made), daemon=True).start()
    try:
        client = made.get(timeout=limit + _GRACE)
    except Empty:
        client = TimeoutError("it answers, but not as a Dask scheduler does")
    if isinstance(client, Exception):
        raise NcclInspectError(
            f"--cluster {address}: the cluster cannot be reached: {words(client)}",
            "give the address that the scheduler prints, such as tcp://10.0.0.1:8786, or its scheduler file",
        )
    return client


def _connect(address: str, limit: float, made: SimpleQueue[Client | Exception]) -> None:
    import warnings

    from distributed import Client
    from distributed.comm.addressing import resolve_address

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of versions: those that matter are looked at here
            scheduler = _in_scheduler_file(address) if Path(address).is_file() else address
            resolve_address(scheduler)  # a client that fails because of it leaves threads behind
            made.put(Client(scheduler, timeout=limit, set_as_default=False))
    except Exception as error:
        made.put(error)


def _in_scheduler_file(path: str) -> str:
    """The address in the file that ``dask scheduler --scheduler-file`` writes."""
    try:
        return str(json.loads(Path(path).read_text(encoding="utf-8"))["address"])
    except (ValueError, TypeError, KeyError):
        raise ValueError("this is not a scheduler file") from None


def version() -> str:
    """What must be the same wherever a fold is made: else it cannot be handed over, or would be another one."""
    return f"nccl-inspect {__version__} and Python {_minor(platform.python_version())}"


def _minor(python: str) -> str:
    return ".".join(python.split(".")[:2])


def check_versions(ask: Callable[..., dict[str, str | Exception]]) -> None:
    """Make sure that the scheduler, through which all tasks go, and all workers have this version.

    Asked with functions that any Python has. Who does not answer, because it has just died, is not judged.

    Args:
        ask: has a function run by all, and gives what each answers or fails with.

    Raises:
        NcclInspectError: one has another version, or none.
    """
    packages = ask(pkgutil.resolve_name, "nccl_inspect._version:__version__")
    pythons = ask(platform.python_version)
    for who, python in pythons.items():
        package = packages.get(who, ConnectionError())
        missing = isinstance(package, ImportError | AttributeError)
        has = "no nccl-inspect" if missing else f"nccl-inspect {package} and Python {_minor(str(python))}"
        unknown = isinstance(python, Exception) or (isinstance(package, Exception) and not missing)
        if has != version() and not unknown:
            raise differs(who, has, version())


def _answers(client: Client, question: Callable[..., str], *about: str) -> dict[str, str | Exception]:
    """What the scheduler and each worker answer, or fail with."""
    try:
        scheduler = client.run_on_scheduler(question, *about)
    except Exception as error:
        scheduler = error
    workers = client.run(question, *about, on_error="return")
    return {"the scheduler": scheduler} | {f"the worker {name}": workers[name] for name in sorted(workers)}


def differs(who: str, has: str, wanted: str) -> NcclInspectError:
    """The error for a worker or scheduler of another version."""
    return NcclInspectError(
        f"{who} has {has}, and this is {wanted}",
        "install the same on the scheduler, on all workers and here: pip install 'nccl-inspect[dask]'",
    )


class Watch:
    """Looks after a cluster while there is nothing to hear of it."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._seen = time.monotonic()

    def look(self) -> None:
        """Make sure that it is worth waiting.

        Raises:
            NcclInspectError: the connection is lost, or for a long time there was no worker.
        """
        try:
            workers = self._client.nthreads()
        except Exception:
            raise lost() from None
        now = time.monotonic()
        if workers:
            self._seen = now
        elif now - self._seen > _ALONE:
            minutes = round(_ALONE / 60)
            raise NcclInspectError(f"the cluster has had no worker for {minutes} minutes", "start some: dask worker")


def lost() -> NcclInspectError:
    """The error for a scheduler that is gone."""
    return NcclInspectError(
        "the connection to the cluster was lost", "see whether its scheduler still runs, or began anew"
    )


def words(error: BaseException) -> str:
    """An error in one line; that of a library may be a page."""
    text = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    return (text or type(error).__name__)[:_MAX_WORDS]
