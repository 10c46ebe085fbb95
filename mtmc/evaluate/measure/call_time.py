"""Time a call: what a version takes when it is called again and again, as its user calls it.

Behind the gate only the device's time shows. Here the candidate's process makes some calls in a row, nothing waits for a
gate, and the host's work counts: Python, launches, allocations. Each call has inputs of its own, which are copied to where
it finds them when the call before has returned, and its outputs are copied away before the next one begins, so that when
the last flag is up all of them lie there (see `calls_in_a_row`). Just before, it makes some calls whose results nobody sees:
after a wait a host takes many times as long for a call (on the host of an H100 a launch took 250 us, then 56, 42, 35, and
after some 25 calls 19), and a version's user does not wait. The oracle's clock sees five moments of such a round:

    start                 the oracle lets the host begin
    host_led, led         the first `LEAD` calls have returned on the host; their work is done on the device
    host_last, done       the same of the last call

In milliseconds a call, without what those copies take (measured on models that return their input, or a part of it):

    host  = (host_last - host_led) / counted calls
    seen  = the larger of (done - led) / counted calls and (done - start) / (calls + 1)

Of the rounds the lower eighth is taken, as of walls (see `clock`): what else the machine does only adds to them. A round by
which a version would become faster has all of its calls compared, so that none gains by what it leaves out.

A loop that is long enough takes the larger of host and device time for each call: the one waits for the other. The word that
the host has returned is the candidate's, so it is held against the clock: where `seen` is more than the larger of both by
more than the slack, `seen` is the time a call. What a forged word can hide is host time, down to the device's time, and the
second term of `seen` leaves of that 1 / (calls + 1) at most: the work of all calls lies between start and done. A forged
last flag gains no more than `TAKE_MS` a round: the outputs that are compared are taken at once, and that is timed, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from mtmc.evaluate.check.layout import aligned
from mtmc.evaluate.measure.clock import OverheadTable, Timing, lower_eighth, more_outputs_ms, slack_ms, summarize
from mtmc.evaluate.reference.calls import CALLS

LEAD = 2
"""Calls before those that are counted: the host gets ahead of the device, and the allocator gets its blocks."""
COUNTED_LEAST, COUNTED_MOST = 3, 8
SLOTS = LEAD + COUNTED_MOST
"""Of the arena, where there is room for so many."""
SLOT_BYTES = 1 << 29
"""All slots together may take, as long as there is one for each call."""
FEW_SLOTS = LEAD + COUNTED_LEAST
SHARE = 10
"""A task of which `FEW_SLOTS` slots take more than one part in so many of the device's memory has one slot: then all calls
have the same inputs, and only the last one's outputs are compared."""
WARM_MS, WARM_MOST = 2.0, 32
"""Calls before a round that make the host warm: as many as take the device so long, and no more than so many."""
COPIES_SHARE = 0.1
"""How far what the copies take may differ from what was measured of those of other sizes."""
FASTER = 0.98
"""A round whose host time is below this share of the least one so far would make the version faster."""
ROUND_MS = 1.5
"""Device time that a round may take, as far as that leaves `COUNTED_LEAST` calls."""
AGREE = 0.04
"""How far apart, as a part of the smaller one, the two rounds that took least may be."""
UNEXPLAINED = 1.5
"""Times the larger of host and device time, from which on what was seen of a call is somebody else's work: torch.compile's
autotuning on the same GPU, say. A step of AdamW of 0.11 ms was taken for one of 0.77 by a screening beside that."""
START_MS = 0.02
"""From the start to the device's first work, and from its last work to the oracle's eyes."""
TAKE_MS = 0.2
"""From the start to the device's first work, and until the device has gone over from one process to the other."""


@dataclass(frozen=True)
class Slots:
    """Pieces of the arena for calls in a row. count: of them. input_step, output_step: bytes from one to the next.

    Where there are several, the inputs of each lie among the outputs first, where no candidate sees them.
    """

    count: int
    input_step: int
    output_step: int

    @classmethod
    def of(cls, input_bytes: int, output_bytes: int, total: int) -> Slots:
        """Slots for a call of so many bytes. total: of the device's memory."""
        steps = aligned(max(input_bytes, 1)), aligned(max(output_bytes, 1))
        each = 2 * steps[0] + steps[1]
        many = min(SLOTS, SLOT_BYTES // each)
        if many < FEW_SLOTS:
            many = FEW_SLOTS if FEW_SLOTS * each * SHARE <= total else 1
        return cls(many, *steps)

    @property
    def revealed(self) -> bool:
        """Whether the inputs of a call come to where it finds them only when the call before has returned."""
        return self.count > 1

    @property
    def sources(self) -> int:
        """Bytes from the start of the output piece to the inputs that lie there."""
        return self.count * self.output_step

    @property
    def sizes(self) -> tuple[int, int]:
        """Bytes of the input and of the output piece."""
        return self.count * self.input_step, self.sources + (self.count * self.input_step if self.revealed else 0)


@dataclass(frozen=True)
class RowPlan:
    """How calls in a row are made. counted: that a round counts. warm: before it. slots: where inputs and outputs lie."""

    counted: int
    warm: int
    slots: Slots

    @classmethod
    def of(cls, device_ms: float, slots: Slots, keeps: bool, changes: bool) -> RowPlan:
        """By the device time of a call. keeps: see `counted_calls`. changes: whether a call changes inputs: then, as where a
        model keeps something, no call is made that does not count, since it would not find what it is to find."""
        warm = 0 if keeps or changes else warm_calls(device_ms)
        return cls(counted_calls(device_ms, slots.count, keeps), warm, slots)


@dataclass(frozen=True)
class LoopBudget:
    """When to stop. least, most: rounds. seconds: after which `least` of them are enough; long_seconds: after which one.
    doubtful, doubtful_seconds: rounds, and the time for them, as long as they do not agree, see `settled`."""

    least: int
    most: int
    seconds: float
    long_seconds: float
    doubtful: int = 0
    doubtful_seconds: float = 0.0

    def enough(self, rounds: int, spent_s: float, agree: bool = True) -> bool:
        """Whether no further round is needed. agree: whether those that there are do."""
        if not agree and rounds < self.doubtful and spent_s < self.doubtful_seconds:
            return False
        if rounds >= self.most or (rounds and spent_s >= self.long_seconds):
            return True
        return rounds >= self.least and spent_s >= self.seconds


@dataclass(frozen=True)
class Moments:
    """When the oracle saw what, in milliseconds from the start, see above. taken: when it had the outputs that are compared,
    less what taking them takes on a device that does nothing else."""

    host_led: float
    led: float
    host_last: float
    done: float
    taken: float = 0.0


@dataclass
class Rounds:
    """Of rounds of calls in a row, milliseconds a call with the handing over. counted: calls that each of them counts.

    hosts, seen: see above; slow_hosts, slow_seen: of those in which a thread was not fast, see `fast_threads`. outputs,
    output_bytes: of a call. input_bytes: that are copied for a call.
    """

    counted: int
    outputs: int = 1
    output_bytes: int = 0
    input_bytes: int = 0
    hosts: list[float] = field(default_factory=list)
    seen: list[float] = field(default_factory=list)
    slow_hosts: list[float] = field(default_factory=list)
    slow_seen: list[float] = field(default_factory=list)

    def add(self, moments: Moments, fast: bool = True) -> bool:
        """Note a round. Returns: whether the host took clearly less than in each before it, so that the version may become
        faster by this one."""
        host = max(0.0, moments.host_last - moments.host_led) / self.counted
        least = min([*self.hosts, *self.slow_hosts], default=float("inf"))
        (self.hosts if fast else self.slow_hosts).append(host)
        steady = (moments.done - moments.led) / self.counted
        whole = max(moments.done - START_MS, moments.taken - TAKE_MS) / (self.counted + LEAD + 1)
        (self.seen if fast else self.slow_seen).append(max(steady, whole, 0.0))
        return host < FASTER * least

    def end(self) -> None:
        """No further ones: the slow ones count where there are no others."""
        if not self.hosts:
            self.hosts, self.seen = [*self.slow_hosts], [*self.slow_seen]


@dataclass(frozen=True)
class CallTime:
    """Milliseconds a call. host_ms: what the host takes, without the device."""

    timing: Timing
    host_ms: float


def counted_calls(device_ms: float, slots: int = SLOTS, keeps: bool = False) -> int:
    """Calls that a round counts, by the device time of one: no more than have slots of their own, as far as there are.

    keeps: whether the model keeps something from call to call: then as many calls as are checked in a row (a cache of keys
    may have room for no more).
    """
    if keeps:
        return CALLS - LEAD
    return max(COUNTED_LEAST, min(COUNTED_MOST, slots - LEAD, int(ROUND_MS / max(device_ms, 1e-3))))


def warm_calls(device_ms: float) -> int:
    """Calls that make the host warm before a round, see `WARM_MS`."""
    return max(1, min(WARM_MOST, int(WARM_MS / max(device_ms, 1e-3))))


def call_time(rounds: Rounds, device: Timing, overheads: OverheadTable) -> CallTime:
    """The time a call. device: of one call, behind the gate; of one that waits for the device, from its call to its end."""
    more = more_outputs_ms(rounds.outputs)
    hosts = [max(0.0, each - overheads.loop_host_ms - more) for each in rounds.hosts]
    host_ms = lower_eighth(hosts)
    over = overheads.loop.ms(rounds.output_bytes, rounds.outputs) + overheads.reveal.ms(rounds.input_bytes, 1)
    seen = [max(0.0, each - over) for each in rounds.seen]
    trials = device.trials + rounds.counted * len(hosts)
    explained = max(device.median_ms, host_ms)
    if lower_eighth(seen) - explained > slack_ms(lower_eighth(rounds.seen), over) + COPIES_SHARE * over:
        return CallTime(_of(seen, trials), host_ms)
    return CallTime(_of(hosts, trials) if host_ms > device.median_ms else device, host_ms)


def settled(rounds: Rounds, device: Timing, overheads: OverheadTable) -> bool:
    """Whether further rounds would tell no more: the device's time explains what was seen, or the two rounds that took least
    agree. What else a machine does adds to some rounds, for tenths of a second now and then (another process takes up its
    work on the GPU): three rounds in 20 ms may all have it."""
    if not rounds.hosts:
        return False
    found = call_time(rounds, device, overheads)
    if found.timing is device:
        return True
    least = sorted(rounds.hosts if found.timing.median_ms == found.host_ms else rounds.seen)[:2]
    return len(least) == 2 and least[1] - least[0] <= AGREE * least[0]


def at_device(rounds: Rounds, device: Timing, overheads: OverheadTable) -> bool:
    """Whether a call takes no longer than the device does."""
    return call_time(rounds, device, overheads).timing is device


def unexplained(rounds: Rounds, device: Timing, overheads: OverheadTable) -> bool:
    """Whether far more was seen of a call than host and device take for it."""
    found = call_time(rounds, device, overheads)
    return found.timing.median_ms > UNEXPLAINED * max(device.median_ms, found.host_ms)


def _of(samples: Sequence[float], trials: int) -> Timing:
    return Timing(lower_eighth(samples), min(samples), summarize(samples).high_ms, trials)
