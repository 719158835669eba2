"""The roles that a production may have (``role:``): what kind of statement its line is.

A rule or an engine asks for the kind (``facts.with_role``), so a new line of the kind is one block in a grammar file.
"""

ROLES = {
    "ends-job": "A launcher, a scheduler, a shell or the process itself says that processes have ended, or ends them.",
    "forced-end": "Somebody ended processes from outside: that is no failure of theirs.",
    "ends-one": "It is known of one process only that somebody ended it: others may run on.",
    "failed-call": "A program prints the error that a call of NCCL returned to it.",
    "propagated-error": "A caller, a launcher or a shell passes on that something failed: the cause is elsewhere.",
    "survivable": "A plugin, a NIC or one of its ports does not come up. NCCL goes on with what is left.",
    "probe": "NCCL asks for something that it can do without: no error at the level INFO.",
}
"""Each with a sentence for authors of grammar files."""
