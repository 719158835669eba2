"""Files that are written beside their place and moved there when they are whole: a reader never sees half of one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from nccl_inspect.errors import NcclInspectError


@contextmanager
def replacing(target: str, option: str, mode: int = 0o666) -> Iterator[BinaryIO]:
    """A file to write to, which takes the place of ``target`` at the end; after an error all is as it was before.

    What is no regular file (a pipe, a device) is written to directly.

    Args:
        target: its path.
        option: the option that named it, for errors.
        mode: its permissions, of which the umask takes some away.

    Raises:
        NcclInspectError: it cannot be written.
    """
    path = Path(target).resolve() if Path(target).is_symlink() else Path(target)
    beside = path.with_name(f".{path.name}.{os.getpid()}.part") if path.is_file() or not path.exists() else path
    try:
        with open(beside, "wb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            yield file
        if beside != path:
            beside.replace(path)
    except OSError as error:
        raise NcclInspectError(
            f"{target}: {error.strerror or error}", f"check the folder given with {option}"
        ) from None
    finally:
        if beside != path:
            with suppress(OSError):
                beside.unlink(missing_ok=True)
