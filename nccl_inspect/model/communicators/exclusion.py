"""Decides connections by what others take: a connection prints once in a communicator.

What fits one member goes to it; what others take there fits that member no longer, and so on. In which order this is
done matters only where something fits no member in the end: all units of such a process are left to
:mod:`.attribution`.
"""

from __future__ import annotations

import numpy as np

from nccl_inspect.model.communicators.loose import LooseBursts
from nccl_inspect.model.fold.edge_table import NOTHING
from nccl_inspect.util.columns import Column, order_of

_MAX_TURNS = 16
"""How often what was decided may decide more; a process that needs more turns is left."""
_LOW, _HALF = np.uint64((1 << 32) - 1), np.uint64(32)
_ONE = np.uint64(1)
_FACTORS = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F)
"""What spreads numbers over buckets: the highest bits of products with odd numbers."""


class Exclusion:
    """Holds which units of loose bursts are certain.

    Args:
        loose: the bursts, whose candidates are narrowed down.
        slots: for each connection of the table a number, the same for those that a communicator has once.
        channels: of each its channels as bits.
        member: of each the number that the member in its process has which has it; -1 where none has.
    """

    def __init__(self, loose: LooseBursts, slots: Column, channels: Column, member: Column) -> None:
        self._loose = loose
        self.turn = np.full(loose.units, NOTHING)
        """In which turn each unit was decided."""
        self._is_open = (loose.candidates != 0) & ~loose.is_doubtful
        self._in_conflict = np.zeros(int(loose.process.max()) + 1, bool)
        """Processes in which the order matters."""
        self._share(slots, channels, member)
        self._decide()
        self.turn[self._in_conflict[loose.process_of_unit]] = NOTHING

    def _share(self, slots: Column, channels: Column, member: Column) -> None:
        """Find the slots that several units want, or that somebody has."""
        loose = self._loose
        wanting = (loose.candidates != 0) & (loose.conn_of_unit != NOTHING)
        self._members = int(loose.candidates.max()).bit_length()
        own = np.flatnonzero(wanting[loose.unit])
        taken = np.flatnonzero((member != NOTHING) & (member < self._members))
        rows = np.concatenate([loose.rows[own], taken])
        unit = np.concatenate([loose.unit[own], np.full(len(taken), NOTHING)])
        for factor in _FACTORS:  # most slots have one line, and need no sorting
            shift = np.uint64(63 - len(rows).bit_length())  # two to four buckets for each row
            bucket = (slots[rows].astype(np.uint64) * factor >> shift).astype(np.int64)
            some = np.flatnonzero((np.bincount(bucket) > 1)[bucket])
            rows, unit = rows[some], unit[some]
        _, slot, number = np.unique(slots[rows], return_inverse=True, return_counts=True)
        some = np.flatnonzero((number > 1)[slot])
        rows, slot, unit = rows[some], slot[some], unit[some]
        self._used = np.zeros(len(number) * self._members, np.uint64)
        """By slots and members."""
        had = np.flatnonzero(unit == NOTHING)
        np.bitwise_or.at(self._used, slot[had] * self._members + member[rows[had]], channels[rows[had]])
        wanted = np.flatnonzero(unit != NOTHING)
        rows, slot, unit = rows[wanted], slot[wanted], unit[wanted]
        order = order_of(slot, unit)
        rows, slot, unit = rows[order], slot[order], unit[order]
        begins = np.flatnonzero(np.append(True, (slot[1:] != slot[:-1]) | (unit[1:] != unit[:-1]))[: len(rows)])
        self._slot, self._unit = slot[begins], unit[begins]
        self._channels, clash = _united(channels[rows], begins)
        unit = self._unit[clash]
        self._in_conflict[loose.process_of_unit[unit[loose.is_of_alike[unit] & self._is_open[unit]]]] = True

    def _decide(self) -> None:
        candidates = self._loose.candidates
        for turn in range(_MAX_TURNS):
            now = self._is_open & (self.turn == NOTHING) & (candidates & (candidates - _ONE) == 0)
            if not now.any():
                break
            self.turn[now] = turn
            self._take(np.flatnonzero(now[self._unit]))
            self._exclude()
        else:
            waiting = self._is_open & (self.turn == NOTHING) & (candidates & (candidates - _ONE) == 0)
            self._in_conflict[self._loose.process_of_unit[waiting]] = True
        waiting = np.flatnonzero(self._loose.is_doubtful[self._unit])
        unit = self._unit[waiting]
        contested = unit[self._blocked(waiting) & candidates[unit] != 0]
        self._in_conflict[self._loose.process_of_unit[contested]] = True

    def _take(self, some: Column) -> None:
        """Let units have what they want of their only candidates, unless two want the same."""
        if not len(some):
            return
        unit = self._unit[some]
        at = self._slot[some] * self._members + number_of_bit(self._loose.candidates[unit])
        order = np.argsort(at, kind="stable")
        at, channels, unit = at[order], self._channels[some[order]], unit[order]
        begins = np.flatnonzero(np.append(True, at[1:] != at[:-1]))
        both, clash = _united(channels, begins)
        clash |= both & self._used[at[begins]] != 0
        self._in_conflict[self._loose.process_of_unit[unit[begins[clash]]]] = True
        self._used[at[begins]] |= both

    def _exclude(self) -> None:
        """Strike out members that have what units want."""
        waiting = np.flatnonzero((self._is_open & (self.turn == NOTHING))[self._unit])
        unit = self._unit[waiting]
        gone = np.zeros(self._loose.units, np.uint64)
        np.bitwise_or.at(gone, unit, self._blocked(waiting))
        self._loose.candidates &= ~gone
        lost = unit[self._loose.candidates[unit] == 0]
        self._is_open[lost] = False
        self._in_conflict[self._loose.process_of_unit[lost]] = True

    def _blocked(self, some: Column) -> Column:
        """A bit for each member that has what is wanted."""
        blocked = np.zeros(len(some), np.uint64)
        for member in range(self._members):
            has = self._used[self._slot[some] * self._members + member] & self._channels[some]
            blocked |= (has != 0).astype(np.uint64) << np.uint64(member)
        return blocked


def _united(bits: Column, begins: Column) -> tuple[Column, Column]:
    """Return the bits that are in one of some groups of numbers, and whether one is in two."""
    if not len(begins):
        return bits, bits != 0
    both = np.bitwise_or.reduceat(bits, begins)
    # Sums are the same as unions where no bit is in two.
    low, high = np.add.reduceat(bits & _LOW, begins), np.add.reduceat(bits >> _HALF, begins)
    return both, (low != both & _LOW) | (high != both >> _HALF)


def number_of_bit(bits: Column) -> Column:
    """Return the number of the bit, of numbers with one bit."""
    return np.frexp(bits.astype(np.float64))[1] - 1
