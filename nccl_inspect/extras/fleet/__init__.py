"""Many jobs in one store: which host, NIC, GPU, image or setting the bad ones share.

A store is a folder with tables in Parquet (:mod:`~nccl_inspect.extras.fleet.tables`). Logs are judged like any other
and appended (:mod:`~nccl_inspect.extras.fleet.adding`); a report compares the bad jobs with the others
(:mod:`~nccl_inspect.extras.fleet.report`).
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from nccl_inspect.errors import NcclInspectError


def library(name: str) -> Any:
    """Return a library that only this part of the program needs, or say how to install it."""
    try:
        return import_module(name)
    except ImportError as error:
        what = f"fleet needs {error.name or name}, which is not installed"
        raise NcclInspectError(what, "pip install 'nccl-inspect[fleet]'") from None
