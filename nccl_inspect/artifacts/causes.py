"""Why groups of ranks stand still, by what PyTorch's flight recorder shows."""

DIFFERENT = "different calls"
"""Ranks made different calls, or with different sizes or types, under one number of a group."""
MISSING = "missing call"  # ranks did not make a call in which others wait, and wait in none themselves
CYCLE = "cycle"  # ranks wait for each other in different groups, each in a call that the other one has still to make
NO_PARTNER = "no partner"  # a rank sends or receives, and its peer does not take part and waits in nothing
PARTLY = "partly finished"  # all ranks made a call; it is over on some of them only
UNFINISHED = "unfinished"  # all ranks made a call, and it is over on none of them
