"""The tool that reads messages out of a library, on instructions of one (2.32.3, shortened)."""

from __future__ import annotations

import library_calls
from source_calls import Call

TEXTS = {0x20: "Connected all rings, use ring PXN %d GDR %d", 0x30: "Call to %s failed", 0x40: "x.cc"}
LOG = "bba90 <_Z20ncclDebugLogInternal17ncclDebugLogLevelmPKcS1_iS1_z>"
INSTRUCTIONS = f"""
  19b8b5:\txor    %edx,%edx
  19b8b7:\txor    %r8d,%r8d
  19b8bc:\tlea    0x1d74ed(%rip),%r9        # 20 <_ZZ30func__+0xf0>
  19b8c3:\tmov    $0x3,%esi
  19b8c8:\tmov    $0x3,%edi
  19b8cd:\tpush   %rax
  19b8dd:\tcall   {LOG}
  19b8e2:\tpop    %rax
  19b900:\tlea    0x1(%rip),%rbx        # 30 <text>
  19b903:\tlea    0x1(%rip),%rdx        # 40 <file>
  19b905:\tmov    %rbx,%r9
  19b908:\tmov    $0x44,%r8d
  19b90b:\tmov    $0xffffffffffffffff,%rsi
  19b910:\tmov    $0x2,%edi
  19b915:\tcall   {LOG}
  19b91a:\tmov    $0x3,%edi
  19b91f:\tmov    0x8(%rsp),%r9
  19b924:\tcall   {LOG}
""".splitlines()


def test_a_call_is_read_with_its_level_subsystems_and_place() -> None:
    ring, failed = library_calls.calls_in(INSTRUCTIONS, TEXTS.get)
    assert ring == Call("INFO", ("INIT", "COLL"), TEXTS[0x20], "unknown", 0)
    assert failed == Call("WARN", (), TEXTS[0x30], "x.cc", 0x44)


def test_what_a_call_leaves_behind_is_not_taken_for_the_arguments_of_the_next_one() -> None:
    again = [*INSTRUCTIONS[:8], f"  19b8ff:\tcall   {LOG}"]
    assert len(list(library_calls.calls_in(again, TEXTS.get))) == 1
