"""What all tests share: neither the speed of the machine nor how they were started must matter."""

import os
import signal

from hypothesis import HealthCheck, settings

settings.register_profile("project", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("project")

# pytest-xdist tells its workers a width; without it output is what a pipe or file gets.
os.environ.pop("COLUMNS", None)

# Shells start what is to run in the background with SIGINT ignored, and all programs that tests start inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

pytest_plugins = ["pytester"]
