"""dropin: a live nn.Module in, the same module with faster kernels out.

optimize.py       optimize(): capture, search, drop_in
drop_in.py        drop_in(): from a module, its capture and versions to a drop-in; which modules cannot be one
optimized.py      the object: the original in everything but forward; its copies
record.py         what `.mtmc` tells; kernels or the original, at each call
modes.py  module_state.py  call_form.py  holds_for.py    when kernels must not run: modes, module, call, tensors
winner.py  places.py  loaded.py  results.py    a version bound to the tensors of a live module
recipe.py  reference.py    a version without the module; what its printed reference tells
verify.py         a version beside the live module, before it is used
operator.py       a version as a custom operator, for torch.compile
"""

from __future__ import annotations

from mtmc.dropin.drop_in import drop_in
from mtmc.dropin.optimize import optimize
from mtmc.dropin.optimized import OptimizedModule
from mtmc.dropin.record import Record

__all__ = ["OptimizedModule", "Record", "drop_in", "optimize"]
