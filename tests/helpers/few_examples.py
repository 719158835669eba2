"""Tests whose examples take long: a part of them in `make test`, the rest in `make test-all`."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings

FEW = settings(
    max_examples=max(2, settings().max_examples // 10), suppress_health_check=[HealthCheck.function_scoped_fixture]
)
"""A tenth of the examples of the profile (see conftest)."""


def every(step: int) -> pytest.MarkDecorator:
    """Give a test the `step` at which it takes its cases: each one only in `make test-all`."""
    return pytest.mark.parametrize("step", [step, pytest.param(1, marks=pytest.mark.slow)], ids=["few", "all"])
