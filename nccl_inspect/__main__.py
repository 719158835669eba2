"""The command, also as ``python -m nccl_inspect``: Ctrl-C is handled before the rest is loaded."""

import gc
import os


def main() -> None:
    """Run the program; it does not return."""
    try:
        # Almost nothing here is cyclic garbage; frequent collections would take a tenth of a short run.
        gc.set_threshold(100_000)
        from nccl_inspect.util import interruption

        interruption.guard()
    except KeyboardInterrupt:
        os.write(2, b"nccl-inspect: interrupted\n")
        os._exit(130)
    from nccl_inspect import cli

    cli.main()


if __name__ == "__main__":
    main()
