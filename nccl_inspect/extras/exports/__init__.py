"""The grammar for other programs, one module for each format.

A module states ``export(productions)``, which gives the text of the file, its name in a folder (``FILE``), and the next
command (``USE``, with ``{out}`` where the path stands). What a format cannot say is written down in its module and in
docs/howto/editors.md.
"""

from nccl_inspect.util.discovery import package

names, load = package(__name__, __file__, "shared")
