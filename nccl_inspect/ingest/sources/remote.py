"""Logs wherever fsspec reaches: ``s3://bucket/prefix/*.log``, and every other store that has a library for it."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from nccl_inspect.ingest.sources import log_detection
from nccl_inspect.ingest.sources.streams import StreamError
from nccl_inspect.util.records import Frozen
from nccl_inspect.util.secrets import mask_secrets

_WEB = re.compile(r"https?://[^?#]*")
WHOLE = 4 << 20  # bytes up to which an object is fetched by one request: a store answers slowly, and then fast
_MAX_WORDS = 200


class Remote(Frozen):
    """An object in a store; opened like a path, in whatever process."""

    url: str
    size: int | None = None

    def __str__(self) -> str:
        return mask_url(self.url)

    @contextmanager
    def open(self, _mode: str = "rb", _buffering: int = 0) -> Iterator[io.RawIOBase | io.BytesIO]:
        """Give its bytes while it is entered.

        Raises:
            StreamError: they cannot be read.
        """
        system, path = _system(self.url)
        with _store_errors():
            if self.size is not None and self.size <= WHOLE:
                yield io.BytesIO(system.cat_file(path))
            else:
                with system.open(path, "rb") as stream:
                    yield stream

    def stat(self) -> None:
        """Find out whether it is there.

        Raises:
            StreamError: it is not, or cannot be asked for.
        """
        system, path = _system(self.url)
        with _store_errors():
            system.info(path)


def find(url: str) -> list[tuple[Remote, bool]]:
    """Return the objects that a URL or a pattern of URLs stands for, each with whether it was found below a prefix.

    Below a prefix only names say what is a log: looking into each object would fetch all of them twice.

    Raises:
        StreamError: there is none, or the store cannot be asked.
    """
    system, path = _system(url)
    with _store_errors():
        system.invalidate_cache()
        if any(mark in path for mark in "*?[") and not system.exists(path):
            found = {
                _name_remote(system, name, url): (name, info) for name, info in system.glob(path, detail=True).items()
            }
        else:
            found = {url: (path, system.info(path))}
        if not found:
            raise StreamError("no object matches", "check the pattern and the bucket")
        objects = []
        for own, (prefix, info) in found.items():
            if info["type"] != "directory":
                objects.append((Remote(own, info["size"]), False))
                continue
            before = len(objects)
            for name, inner in system.find(prefix, detail=True).items():
                inside = name.removeprefix(prefix).lstrip("/")
                named = log_detection.is_plausible(inside) or log_detection.is_named_as_archive(inside)
                if inner["type"] == "file" and named and not log_detection.is_left_out(inside):
                    objects.append((Remote(_name_remote(system, name, url), inner["size"]), True))
            if len(objects) == before:
                raise StreamError("no object below it has the name of a log", "give a pattern, such as PREFIX/*")
    return sorted(objects, key=lambda entry: log_detection.natural(entry[0].url))


def _name_remote(system: Any, name: str, url: str) -> str:
    """Return the URL of an object found for another URL, which may be a chain such as ``zip://*.log::s3://…``."""
    parts = url.split("::")
    place = next(place for place, part in enumerate(parts) if "://" in part)
    parts[place] = system.unstrip_protocol(name)
    return "::".join(parts)


def mask_url(url: str) -> str:
    """Return a URL without secrets: passwords, and the signature of one that was made for a while."""
    web = _WEB.match(url)
    return mask_secrets(web[0] if web else url)


def _system(url: str) -> tuple[Any, str]:
    """Return what opens a URL, and the path in it.

    Raises:
        StreamError: a library is missing, or nobody knows the protocol.
    """
    try:
        from fsspec.core import url_to_fs  # takes its time to load
    except ImportError:
        raise StreamError("a URL is read with fsspec, which is not installed", "pip install fsspec") from None
    with _store_errors():
        try:
            system, path = url_to_fs(url)
        except ImportError as error:
            from fsspec.registry import known_implementations

            protocol = re.split("::|://", url)[0]
            package = known_implementations.get(protocol, {}).get("class", "").split(".")[0]
            library = f"pip install {package}" if package not in ("", "fsspec") else "install what it names"
            raise StreamError(_words(error), library) from None
        return system, path


@contextmanager
def _store_errors() -> Iterator[None]:
    """Say in our words what a store answers: each of its libraries has errors of its own."""
    try:
        yield
    except StreamError:
        raise
    except FileNotFoundError:
        raise StreamError("no such object", "check the URL and who may read it") from None
    except Exception as error:
        raise StreamError(_words(error), "check the URL, the network and who may read it") from None


def _words(error: Exception) -> str:
    """Return an error in one line: some hold a page."""
    text = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
    return mask_secrets(text[:_MAX_WORDS])
