"""``nccl-inspect.toml``: what holds for every job that is judged in a folder and below it.

::

    platform = "p5.48xlarge"        # where the log does not name the machine type
    topology = "topo.txt"           # relative to this file
    select = ["network", "gdr-*"]   # rules that run; all without it
    ignore = ["p2p-read-mode"]      # rules that do not

    [severity]                      # names, globs or categories of rules; a name beats a glob
    one-gpu-per-pod = "info"

    [[suppress]]                    # findings that are known and accepted
    rule = "socket-instead-of-efa"
    hosts = ["build-*"]             # only findings that are about no other host
    ranks = "0-7"                   # or no other rank
    reason = "the build machines have no EFA"
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from nccl_inspect import platforms
from nccl_inspect.errors import NcclInspectError
from nccl_inspect.judging.accepted import Suppression, Terms
from nccl_inspect.judging.engine import SEVERITIES, select_rules
from nccl_inspect.pipeline.reading import Options
from nccl_inspect.util.discovery import settings_file
from nccl_inspect.util.toml import Table, load


def apply_settings(options: Options, path: Path) -> Options:
    """Complete options as :func:`complete_options` does; by the file in a folder or above it, if there is one."""
    file = settings_file(path.resolve()) if path.is_dir() else path
    return complete_options(options, file) if file else options


def complete_options(options: Options, path: Path) -> Options:
    """Return options with what a settings file adds; what they say themselves wins.

    A ``select`` of the options sets aside ``select`` and ``ignore`` of the file; ``ignore`` is added to the file's.

    An NcclInspectError says that the file is not understood.
    """
    table = load(path, "--config")
    platform = table.text("platform")
    if platform is not None:
        try:
            platforms.require_platform(platform)
        except NcclInspectError as error:
            raise table.error(error.message, error.hint) from None
    folder = path.parent
    topologies = tuple(str(folder / name) for name in table.texts("topology"))
    select, ignore = table.texts("select"), table.texts("ignore")
    for pattern in (*select, *ignore):  # each fits some rule
        _rules(table, pattern)
    severities: dict[str, str] = {}
    section = table.table("severity")
    for pattern in section.names():
        severity = section.text(pattern, SEVERITIES)
        for rule in _rules(section, pattern):
            if severity and (rule == pattern or rule not in section):
                severities[rule] = severity
    suppressions = []
    for entry in table.tables("suppress"):
        name, hosts = entry.text("rule"), entry.texts("hosts")
        ranks, reason = entry.ranks("ranks"), entry.text("reason")
        entry.close()
        if not name:
            raise entry.error("no rule", "write rule = \"name\"; see 'nccl-inspect rules' for names and categories")
        if not (reason or "").strip():
            raise entry.error(f"no reason for {name}", 'write reason = "why this is accepted"')
        suppressions.append(Suppression(_rules(entry, name), " ".join(str(reason).split()), hosts, ranks))
    terms = Terms(severities, tuple(suppressions))
    table.close()
    return replace(
        options,
        platform=options.platform or platform,
        topologies=options.topologies or topologies,
        select=options.select or select,
        ignore=options.ignore if options.select else (*options.ignore, *ignore),
        terms=terms,
        config=str(path),
    )


def _rules(table: Table, pattern: str) -> frozenset[str]:
    """Return the names of the rules that a name, glob or category means."""
    try:
        return frozenset(entry.rule.name for entry in select_rules([pattern]))
    except NcclInspectError as error:
        raise table.error(error.message, error.hint) from None
