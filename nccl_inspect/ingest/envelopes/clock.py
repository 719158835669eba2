"""A date and time that launchers, ``ts`` or a syslog without tag put in front."""

import re

from nccl_inspect.ingest.lines.envelope_fields import DAY, ISO, Stated

FIRST = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_"
PATTERN = re.compile(
    rb"(?P<time>" + DAY + rb"(?:\.\d{1,6})?|" + ISO + rb"|\d\d:\d\d:\d\d(?:[.,]\d{1,9})?|\d{10}\.\d{1,9}):? "
)
SAMPLES = {
    b"Nov 20 23:13:07 ": Stated(time="Nov 20 23:13:07"),
    b"2026-11-20 23:13:07,071 ": Stated(time="2026-11-20 23:13:07,071"),
    b"1795216387.071868 ": Stated(time="1795216387.071868"),
    b"23:13:07.071 ": Stated(time="23:13:07.071"),
}
