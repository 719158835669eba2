"""The command, also as ``python -m nccl_inspect``: what Ctrl-C does is settled before the rest is loaded."""

import os


def main() -> None:
    """Entry point; it does not return."""
    try:
        from nccl_inspect import interruption

        interruption.guard()
    except KeyboardInterrupt:
        os.write(2, b"nccl-inspect: interrupted\n")
        os._exit(130)
    from nccl_inspect import cli

    cli.main()


if __name__ == "__main__":
    main()
