"""``python -m nccl_inspect``: the command, where its script is not on the path."""

from nccl_inspect.cli import main

main()
