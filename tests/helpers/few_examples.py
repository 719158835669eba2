"""Properties whose examples take long: a tenth of the examples of the profile (see conftest)."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

FEW = settings(
    max_examples=max(2, settings().max_examples // 10), suppress_health_check=[HealthCheck.function_scoped_fixture]
)
