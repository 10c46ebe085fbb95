"""Tasks: a reference in KernelBench's format (`Model`, `get_inputs()`, `get_init_inputs()`) at several sets of shapes.

    base.py        Task, Variant
    load.py        from a built-in name, a path or a text; from a live module
    bundling.py    a file and what it imports from beside it, as one text (siblings.py: these modules; scopes.py,
                   meanings.py: what names mean)
    constants.py   the module-level integers of a file, and the same file with other values
    tolerance.py   how far outputs may be from the reference's, as a file declares it
    shapes.py      small and odd shapes, derived by shrinking these integers (points.py: to what; trials.py: trying it)
    quantized.py   types of 8 bits, which torch stores and hardly computes in
    reference.py   running a reference on the CPU, and what it weighs
    first_run.py   a user's file run for the first time, and what is wrong with it (child.py: in a process of its own)
    live*.py       a live module printed as a file
    tensors.py     the tensors of a structure, and what tells their memory
    capture.py     what a capture of a live module holds, and where its tensors are found again
    exporting.py   torch.export, quietly

Importing this loads no torch.
"""

from __future__ import annotations

from mtmc.task.base import DECLARATION, Task, Variant
from mtmc.task.capture import Capture, resolve
from mtmc.task.constants import apply_constants, integer_constants
from mtmc.task.load import builtin_names, capture_module, load_task, task_from_module, task_from_source
from mtmc.task.slot import Slot
from mtmc.task.tolerance import Tolerance

__all__ = [
    "DECLARATION",
    "Capture",
    "Slot",
    "Task",
    "Tolerance",
    "Variant",
    "apply_constants",
    "builtin_names",
    "capture_module",
    "integer_constants",
    "load_task",
    "resolve",
    "task_from_module",
    "task_from_source",
]
