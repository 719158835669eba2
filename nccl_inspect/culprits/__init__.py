"""What bad paths, connection ends or ranks have in common and good ones lack.

:mod:`.traits` says what a path, an end or a rank has: hosts, GPUs, NICs, rails, communicators, settings, versions.
:mod:`.search` finds the fewest traits that explain all that is bad. Neither knows rules or words.
"""
