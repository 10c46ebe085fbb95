"""Small and odd shapes of a task that declares none, by trial: shrink its integers while it still runs.

Points (`points.py`) are tried in a fixed order (`trials.py`), and effort is counted in work done, not in seconds, so the
same file always gives the same shapes. A large task never runs at its full shapes with data.

Some references stay large whatever is shrunk: the widths of a deep network are written into its layers. They get the
smallest shapes that run at all, under the limits `LARGE`: library calls do such shapes in a second, and a kernel that is
interpreted there for too long runs into the evaluator's limit of time, which its outcome says.

Integers up to `KEPT` are left alone: they are kernel sizes, strides, dimension numbers. One that is a size of the inputs is
raised where the reference is too inexact otherwise, as a network of batch norms over a batch of two is. Of odd shapes
those are taken where it is most exact.
"""

from __future__ import annotations

import logging
from dataclasses import replace

from mtmc.errors import TaskError
from mtmc.task.base import Variant
from mtmc.task.constants import INPUT_FUNCTIONS, distinct_constants
from mtmc.task.points import STARTS, STARTS_LARGE, Point
from mtmc.task.trials import ACCEPTED, CALLS, EFFORT, GAIN, OWN_ERROR, PREFERRED, Live, Search

_log = logging.getLogger(__name__)

KEPT = 8
HELD_OUT, HELD_OUT_LARGE = 3, 2
_MEND = (
    "Add to the file `def get_small_inputs():` that returns what get_inputs() returns at small shapes (at most "
    f"{PREFERRED[0]} elements a tensor), and `def get_small_init_inputs():` if the constructor's arguments change too"
)


def derive_small(source: str, name: str, live: Live | None = None) -> Variant:
    """The small shapes of a task: its module-level integers above `KEPT` as powers of two, as large as stays cheap.

    live: where the text stands for a live module. Then all its integers are sizes, and as its weights cannot shrink,
    shapes that are dear to interpret are better than none.
    Raises: TaskError where no small shapes run; it gives the reason and says how to add get_small_inputs().
    """
    full = _sizes(source, live)
    search = Search(source, name, Variant("small"), live, few=_few(source))
    if live is None:
        search.model = search.weigh(full, None, free=True)
    found = search.small(full)
    if found is None and search.other_ways:
        search.model, search.effort = None, EFFORT  # Better another way than none.
        found = search.small(full)
    if found is not None:
        return found
    first = f"the first failure: {search.first_failure}; " if search.first_failure else ""
    raise TaskError(
        f"task {name} has no small inputs, and none were found by shrinking its integers "
        f"({', '.join(full) or f'none above {KEPT}'}); {first}last tried: {search.last_failure}. {_MEND}"
    )


def derive_held_out(
    source: str, small: Variant, name: str, count: int = HELD_OUT, live: Live | None = None
) -> tuple[Variant, ...]:
    """Up to `count` sets of shapes near the small ones: odd sizes where the reference allows, distinct where it allows.

    Where the small inputs do not follow the module-level integers (a get_small_inputs() with numbers of its own), they
    are derived from get_inputs() instead. Fewer than `count`, with a warning, where the integers leave no more.
    """
    point = {**_sizes(source, live), **dict(small.constants)}
    search = Search(source, name, small, live)
    taken = search.weigh(point, None, free=True)
    large = search.large(taken)
    enough = GAIN * max(OWN_ERROR, search.own_error(point, taken))
    count = min(count, HELD_OUT_LARGE) if large else count
    found = dict[tuple[tuple[str, int], ...], float]()  # the points and the reference's own error there
    for index in STARTS_LARGE if large else range(len(STARTS)):
        odd = Search(source, name, small, live).odd(point, index, large)
        if odd != point and tuple(odd.items()) not in found:
            found[tuple(odd.items())] = search.own_error(odd, search.weigh(odd, None, free=True)) if large else 0.0
        if sum(error <= enough for error in found.values()) == count:
            break
    steady = sorted(found, key=lambda constants: max(found[constants], enough))[:count]
    variants = [replace(small, label=f"odd{number + 1}", constants=each) for number, each in enumerate(steady)]
    if len(variants) == count:
        return tuple(variants)
    if not variants and small.inputs != "get_inputs":
        try:
            return derive_held_out(source, derive_small(source, name), name, count)
        except TaskError as error:
            _log.debug("task %s: no held-out shapes from get_inputs(): %s", name, error)
    hint = "VARIANTS can give them" if live is None else "only example sizes above 1 can be varied"
    _log.warning("task %s: %d of %d held-out sets of shapes found; %s", name, len(variants), count, hint)
    return tuple(variants)


def _few(source: str) -> Point:
    """The integers that are no sizes, as far as one can tell."""
    return {key: value for key, value in distinct_constants(source).items() if 0 < value <= KEPT}


def check_runs(source: str, variant: Variant, name: str) -> None:
    """Run the reference at declared shapes; a warning where they are large. Raises: TaskError if it fails."""
    from mtmc.task.reference import Limits, Meter, TooLargeError, weigh

    try:
        weigh(source, variant, name, meter=Meter(Limits(*ACCEPTED, CALLS)))
    except TooLargeError as error:
        _log.warning("task %s: its %s shapes are large (%s): slow to interpret", name, variant.label, error)


def _sizes(source: str, live: Live | None) -> Point:
    """The integers that may be changed, each under one name. Of a live module's text these are all at module level."""
    found = distinct_constants(source)
    if live is not None:
        return {key: value for key, value in found.items() if value > 1 and not key.startswith(INPUT_FUNCTIONS)}
    return {key: value for key, value in found.items() if value > KEPT}
