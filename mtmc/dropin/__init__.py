"""dropin: a live nn.Module in, the same module with faster kernels out.

optimize.py       optimize(): capture, search or cache, drop_in
load.py           load(): the same from a run's folder; binding.py: what a run keeps for that
found.py          what was found in short, by a search or in the cache
drop_in.py        drop_in(): from a module, its capture and versions to a drop-in; which modules cannot be one
optimized.py      the object: the original in everything but forward; its copies
record.py         what `.mtmc` tells; kernels or the original, at each call
modes.py  module_state.py  call_form.py  holds_for.py    when kernels must not run: modes, module, call, tensors
winner.py  recent.py  places.py  loaded.py  results.py    a version bound to the tensors of a live module
recipe.py  reference.py    a version without the module; what its printed reference tells
verify.py         a version beside the live module, before it is used
compiled.py       whether torch.compile is faster than the best version
operator.py  traced.py    a version as a custom operator; what torch.compile sees of a drop-in
"""

from __future__ import annotations

from mtmc.dropin.drop_in import drop_in
from mtmc.dropin.found import Found
from mtmc.dropin.load import load
from mtmc.dropin.optimize import optimize
from mtmc.dropin.optimized import OptimizedModule
from mtmc.dropin.record import Record

__all__ = ["Found", "OptimizedModule", "Record", "drop_in", "load", "optimize"]
