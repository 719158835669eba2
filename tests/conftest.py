"""What all tests share: hypothesis must not judge how fast the machine is."""

from hypothesis import HealthCheck, settings

settings.register_profile("project", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("project")

pytest_plugins = ["pytester"]
