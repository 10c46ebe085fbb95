"""Launches of Triton kernels, each counted from a few of its programs instead of being run."""

from __future__ import annotations

import contextlib
import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mtmc.evaluate.compiling.launched import as_text, described
from mtmc.evaluate.counting.counters import common_of, shares_of
from mtmc.evaluate.counting.intercepting import Launched, constexprs_of, intercepted, launched_as
from mtmc.evaluate.counting.interpreter_parts import patched_language
from mtmc.evaluate.counting.meter import Meter
from mtmc.evaluate.counting.program import Program
from mtmc.evaluate.counting.sample import borders, sample_programs, sample_weights, turn, turn_weights
from mtmc.evaluate.counting.storages import Storages
from mtmc.evaluate.counting.tally import Record, Tally, summary

if TYPE_CHECKING:
    from mtmc.evaluate.counting.contents import Contents

_CACHED = 4 << 20  # bytes of one storage that stay in the last cache of every GPU of the table

_OFTEN = 1.5
"""Times that all bytes of a storage are read from which on it is looked into who reads them again."""
TURN_WORK = 2.0
"""Times the work of a sample that is spent on programs that come in turns."""
_NO_NEIGHBOURS: Record = {"window_read": {}, "trailing": 0, "trailing_read": 0.0}


@dataclass(frozen=True)
class Limits:
    """How much of a launch is run. Work is in interpreter microseconds by a fixed price list, not by the clock.

    programs: most program instances run whole. work: stop taking further samples beyond it. program_work: the most for
    one program. probes: most programs started only to see which data neighbours share.
    """

    programs: int = 12
    work: float = 0.5e6
    program_work: float = 15e6
    probes: int = 192


@dataclass(frozen=True)
class Sampled:
    """A launch that was counted, and its record. tallies: of the programs that were run, by index."""

    record: Record
    program: Program
    tallies: Mapping[int, Tally]


class Launches:
    """Takes the place of running a kernel: samples its programs and appends a record."""

    def __init__(
        self,
        parts: Any,
        storages: Storages,
        log: list[Record],
        limits: Limits,
        exact: bool,
        paused: list[bool],
    ) -> None:
        self.parts, self.storages, self.log, self.limits, self.exact = parts, storages, log, limits, exact
        self.paused = paused
        self.meter = Meter(parts, storages, touch_memory=exact)
        self.sampled: list[Sampled] = []
        self.before: list[Record] = []  # of an earlier call, whose results this one reads; not counted

    @contextlib.contextmanager
    def intercept(self) -> Iterator[None]:
        """Catch launches while open; autotuned kernels take their first configuration."""

        def launch(jitted: Any, args: Any, kwargs: Any, grid: Any, original: Any) -> None:
            launched = launched_as(self.parts, jitted, args, kwargs, grid, hooks=not self.exact)
            if self.exact:
                self.log.append(
                    self._exactly(launched, lambda: original(jitted, *args, grid=launched.size, warmup=False, **kwargs))
                )
            else:
                self.log.append(self.sample(launched))

        with intercepted(self.parts, launch), patched_language(self.parts):
            yield

    def sample(self, launched: Launched) -> Record:
        """Count one launch, whose record this is, from some of its programs."""
        record = self._begun(launched)
        program = Program(
            self.parts,
            self.meter,
            launched.jitted,
            dict(launched.bound),
            constexprs_of(self.parts, launched.jitted),
            launched.size,
        )
        with self.meter.installed():
            tallies = self._tallies(program) if math.prod(launched.size) else {}
            record.update(self.summarized(program, tallies))
            if tallies and 0 not in tallies:
                self._add_first(launched, program, tallies, record)
        self.sampled.append(Sampled(record, program, tallies))
        return record

    def _exactly(self, launched: Launched, run: Callable[[], None]) -> Record:
        record = self._begun(launched)
        self.meter.maps.clear()
        tally = self.meter.start(math.inf)
        self.paused.append(True)
        with self.meter.installed():
            run()
        self.paused.pop()
        record.update(self._exact(tally, record["programs"]))
        return record

    def _begun(self, launched: Launched) -> Record:
        """What a launch is, without what it comes to."""
        fixed = constexprs_of(self.parts, launched.jitted)
        for tensor in launched.tensors:
            self.storages.number(tensor)
        return {
            "kernel": launched.jitted.__name__,
            "grid": list(launched.size),
            "programs": math.prod(launched.size),
            "constexprs": {n: _plain(v) for n, v in launched.bound.items() if n in fixed},
            "num_warps": launched.num_warps,
            "num_stages": launched.num_stages,
            "arguments": {n: as_text(described(v)) for n, v in launched.bound.items()},
            "function": launched.function,
        }

    def _tallies(self, program: Program) -> dict[int, Tally]:
        """What programs of each part of the grid (interior, last row, last column, ...) do, by index."""
        self.meter.counters.raised.clear()
        tallies = self._run_some(program)
        total = math.prod(program.size)
        program.shares = shares_of(self.meter.counters.raised, total)
        program.common = common_of(self.meter.counters.raised)
        # What one does may hang on which of those it is that raise the same counter.
        tallies = self._run_some(program) if {*program.shares.values()} - {total} else tallies
        return self._with_a_turn(program, tallies) or self._with_borders(program, tallies)

    def _run_some(self, program: Program) -> dict[int, Tally]:
        tallies: dict[int, Tally] = {}
        work = 0.0
        for index, _ in sample_programs(program.size, self.limits.programs):
            # The first sample says what one costs; at least the most typical one always runs.
            if tallies and work + work / len(tallies) > self.limits.work:
                break
            tallies[index] = program.run(index, self.limits.program_work)
            work += tallies[index].work
        return tallies

    def _with_a_turn(self, program: Program, tallies: Mapping[int, Tally]) -> dict[int, Tally]:
        """Those and all of one turn, where programs come in turns of a few kinds; else none."""
        run, work = dict(tallies), 0.0

        def kind_of(index: int) -> Hashable:
            nonlocal work
            if work > TURN_WORK * self.limits.work:
                return index  # as no other: it ends the search
            run[index] = program.run(index, self.limits.program_work)
            work += run[index].work
            return _kind(run[index])

        program.turn = turn(program.size, {index: _kind(tally) for index, tally in tallies.items()}, kind_of)
        if program.turn is None:
            return {}
        return {index: tally for index, tally in run.items() if index in tallies or index in program.turn}

    def _with_borders(self, program: Program, tallies: dict[int, Tally]) -> dict[int, Tally]:
        """Those and, where few stretches of programs do different things, the ones at the ends of each."""
        work = sum(tally.work for tally in tallies.values())
        alike = {index: _kind(tally) for index, tally in tallies.items()}
        for index in borders(program.size, lambda a, b: alike[a] == alike[b], list(tallies)):
            if work > self.limits.work:
                break
            tallies[index] = program.run(index, self.limits.program_work)
            alike[index] = _kind(tallies[index])
            work += tallies[index].work
        return tallies

    def _add_first(self, launched: Launched, program: Program, tallies: Mapping[int, Tally], record: Record) -> None:
        """Add what the first program touches of the tensors that none of the sampled ones does: totals, and statistics that
        all programs of a row know, are written by one of them, which a sample of few need not hold."""
        missed = {self.storages.number(tensor) for tensor in launched.tensors}
        missed -= {number for tally in tallies.values() for number in tally.uses}
        if not missed:
            return
        uses = program.run(0, self.limits.program_work).uses
        for number in sorted(missed & {each for each in uses if each is not None}):
            for where, unique, size in (
                ("reads", "unique_read", uses[number].unique_read),
                ("writes", "unique_written", uses[number].unique_written),
            ):
                if size:
                    record[where].append([number, size])
                    record[unique] += size

    def computed(self, program: Program, index: int, contents: Contents) -> Tally:
        """What one program does that computes; it leaves what it stored in `meter.left`.

        The meter must be installed. Another program may be under way, which goes on afterwards.
        """
        with self.meter.aside(contents):
            return program.run(index, self.limits.program_work)

    def summarized(self, program: Program, tallies: Mapping[int, Tally]) -> Record:
        """A sample scaled to the whole grid."""
        total = math.prod(program.size)
        if total == 0:
            return summary([], [], self.storages.sizes) | _NO_NEIGHBOURS | {"sampled": 0}
        if program.turn is None:
            weights = sample_weights(program.size, list(tallies))
        else:
            weights = turn_weights(program.size, program.turn, list(tallies))
        record = summary(list(tallies.values()), weights, self.storages.sizes)
        record["window_read"] = self._windows(program, tallies, record, total)
        record |= self._trailing(program, tallies, record)
        record["sampled"] = len(tallies)
        return record

    def _windows(self, program: Program, tallies: Mapping[int, Tally], record: Record, total: int) -> dict[str, int]:
        """Unique bytes that the first n programs of the launch order read together, for n = 1, 2, 4, ...

        Programs that begin at the same address of a storage are taken to read the same bytes of it.
        """
        typical = next(iter(tallies.values()))
        each = {n: use.unique_read for n, use in typical.uses.items() if use.unique_read}
        unique = dict(record["reads"])
        tops = {n: unique.get(n, each[n] * total) for n in each}
        # Only what is read again and again, and does not fit the last cache of every GPU anyway, is worth the probing.
        probed = {n for n in each if n is not None and each[n] * total > _OFTEN * tops[n] and tops[n] > _CACHED}
        if not probed:
            return {str(n): sum(min(n * each[k], tops[k]) for k in each) for n in _doublings(total)}
        spent = 0.0
        seen: dict[int, set[int | None]] = {n: set() for n in probed}
        curve: dict[str, int] = {}
        for count in range(1, min(total, self.limits.probes) + 1):
            tally = program.run(count - 1, self.limits.program_work, probed)
            spent += tally.work
            for n in probed:
                seen[n].update({tally.uses[n].first} if n in tally.uses else ())
            last = count == min(total, self.limits.probes) or spent > self.limits.work
            if count & (count - 1) == 0 or last:
                held = {n: len(seen[n]) if n in probed else count for n in each}
                curve[str(count)] = sum(min(held[n] * each[n], tops[n]) for n in each)
            if last:
                break
        return curve

    def _trailing(self, program: Program, tallies: Mapping[int, Tally], record: Record) -> dict[str, float]:
        """What programs read that others have read some programs before: see `mtmc.evaluate.counting.traffic`. Only of those
        that take their numbers when they begin: of others it hangs on the GPU who comes before whom."""
        index, typical = next(iter(tallies.items()))
        total, tops = math.prod(program.size), dict(record["reads"])
        found: dict[str, float] = {"trailing": 0, "trailing_read": 0.0}
        for number, use in typical.uses.items() if program.common else ():
            often = use.unique_read * total > _OFTEN * tops.get(number, math.inf) and tops[number] > _CACHED
            if not often or index + 1 >= total:
                continue
            beside = program.run(index + 1, self.limits.program_work).uses.get(number)
            behind = 0 if beside is None else use.behind(beside)
            if 0 < behind <= index:
                before = program.run(index - behind, self.limits.program_work).uses.get(number)
                again = 0.0 if before is None else use.common(before)
                if again * total > found["trailing_read"]:
                    found = {"trailing": behind, "trailing_read": again * total}
        return found

    def _exact(self, tally: Tally, programs: int) -> Record:
        import numpy as np

        record = summary([tally], [1.0], self.storages.sizes)
        unique: dict[tuple[int, bool], int] = defaultdict(int)
        for (number, writes, size), touched in self.meter.maps.items():
            unique[number, writes] += int(np.count_nonzero(touched)) * size
        record["reads"] = [[n, size] for (n, writes), size in unique.items() if not writes]
        record["writes"] = [[n, size] for (n, writes), size in unique.items() if writes]
        record["unique_read"] = sum(size for _, size in record["reads"])
        record["unique_written"] = sum(size for _, size in record["writes"])
        for name in ("rounds", "dots"):
            record[name] /= max(1, programs)
        record["dots_most"] = record["dots"]
        return record | _NO_NEIGHBOURS | {"program_read": 0, "sampled": programs}


def _kind(tally: Tally) -> Hashable:
    """Bytes of each storage that a program reads and writes: those that move as many are alike."""
    return frozenset((number, use.unique_read, use.unique_written) for number, use in tally.uses.items())


def _doublings(total: int) -> list[int]:
    """Up to more programs than any GPU runs at once."""
    return [1 << power for power in range(min(total, 8192).bit_length())]


def _plain(value: Any) -> Any:
    inner = getattr(value, "value", value)
    return inner if inner is None or isinstance(inner, bool | int | float | str) else str(inner)
