"""Fuzzes the package for a while and keeps what breaks it: ``python tools/fuzz.py --seconds 120``.

With Google's ``atheris`` installed, inputs are guided by the code that they reach; without it they are changed blindly.
Each crasher is written to ``tests/data/crashers/TARGET-HASH`` and is a regression test from then on.
"""

from __future__ import annotations

import argparse
import hashlib
import random
import resource
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
CRASHERS = Path(__file__).parent.parent / "tests" / "data" / "crashers"
_SLOW = 10.0
"""Seconds of processor time that no input of this size may take."""


def main() -> None:
    """Fuzz the targets one after the other, each for its share of the time."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=120, help="for all targets together")
    parser.add_argument("--target", action="append", help="only this one; may be repeated")
    parser.add_argument("--seed", type=int, default=None, help="repeat a run without atheris")
    parser.add_argument("--blind", action="store_true", help="leave atheris out")
    parser.add_argument("--crashers", type=Path, default=CRASHERS, help="where what breaks a target is kept")
    parser.add_argument("--guided", help=argparse.SUPPRESS)  # the run of one target in a process of its own
    options = parser.parse_args()
    if options.guided:
        _fuzz_guided(options.guided, options.seconds, options.crashers)
        return
    from fuzz_targets import TARGETS

    names = options.target or list(TARGETS)
    share = options.seconds / len(names)
    seed = random.SystemRandom().randrange(1 << 32) if options.seed is None else options.seed
    guided = not options.blind and _has_atheris()
    print(f"fuzzing {', '.join(names)}: {share:.0f} s each, " + ("guided by coverage" if guided else f"--seed {seed}"))
    found = 0
    for name in names:
        if guided:
            arguments = ["--guided", name, "--seconds", str(share), "--crashers", str(options.crashers)]
            found += subprocess.run([sys.executable, __file__, *arguments], check=False).returncode != 0
        else:
            found += _fuzz_blindly(name, TARGETS[name], share, seed, options.crashers)
    used = resource.getrusage(resource.RUSAGE_CHILDREN if guided else resource.RUSAGE_SELF)
    print(f"{found} broken, {used.ru_utime + used.ru_stime:.0f} s of processor time")
    sys.exit(found > 0)


def _has_atheris() -> bool:
    try:
        import atheris  # noqa: F401
    except ImportError:
        return False
    return True


def _fuzz_blindly(name: str, target: Callable[[bytes], None], seconds: float, seed: int, crashers: Path) -> int:
    from fuzz_seeds import SEEDS, mutate

    choice = random.Random(f"{name} {seed}")
    seeds = SEEDS[name]()
    end = time.monotonic() + seconds
    runs, kinds = 0, set()
    while time.monotonic() < end:
        data = mutate(choice.choice(seeds), seeds, choice)
        runs += 1
        try:
            _require_time(target, data)
        except Exception as error:
            kind = _kind(error)
            if kind not in kinds:
                kinds.add(kind)
                print(f"{name}: {kind[0]}: {str(error)[:300]}\n  kept as {_keep(name, data, crashers)}")
                traceback.print_exc()
    print(f"{name}: {runs} runs, {len(kinds)} kinds of defects")
    return len(kinds)


def _kind(error: Exception) -> tuple[str, object]:
    """Return what makes two defects the same: the class and where it was raised, or where a promise was made."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.name != "promise"]
    return type(error).__name__, (frames[-1].filename, frames[-1].lineno)


def _require_time(target: Callable[[bytes], None], data: bytes) -> None:
    began = time.process_time()
    target(data)
    took = time.process_time() - began
    if took > _SLOW:
        raise TimeoutError(f"{took:.0f} s for {len(data)} bytes")


def _keep(name: str, data: bytes, crashers: Path) -> Path:
    crashers.mkdir(parents=True, exist_ok=True)
    path = crashers / f"{name}-{hashlib.sha256(data).hexdigest()[:10]}"
    path.write_bytes(data)
    return path


def _fuzz_guided(name: str, seconds: float, crashers: Path) -> None:
    import atheris

    with atheris.instrument_imports(include=["nccl_inspect"]):
        from fuzz_targets import TARGETS
    from fuzz_seeds import SEEDS

    target = TARGETS[name]
    corpus = crashers.parent / ".fuzz" / name
    corpus.mkdir(parents=True, exist_ok=True)
    for number, data in enumerate(SEEDS[name]()):
        (corpus / f"seed-{number}").write_bytes(data)

    def run(data: bytes) -> None:
        try:
            _require_time(target, data)
        except Exception:
            print(f"{name}: kept as {_keep(name, data, crashers)}")
            raise

    arguments = [str(corpus), f"-max_total_time={int(seconds)}", "-max_len=20000", "-timeout=60", "-verbosity=0"]
    atheris.Setup([sys.argv[0], *arguments, f"-artifact_prefix={corpus}/crash-"], run)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
