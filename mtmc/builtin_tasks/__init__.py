"""Built-in tasks, one file each: `mtmc.task.load_task("softmax")` loads `softmax.py`. Nothing here is imported.

A task's file is in KernelBench's format: module-level constants that give the full shapes, `class Model(nn.Module)`,
`get_inputs()` (the list of forward's arguments) and `get_init_inputs()` (the list of the constructor's). What `Model`
needs to know it is told by its constructor; it reads no module-level constant.

The other shapes can be given in two ways, here and in a user's file:

1. `VARIANTS`, a literal dict: label -> {constant: integer}. "small" is the set that the interpreter checks at, and
   "odd1", "odd2", ... are the held-out ones. The built-in tasks all do this, for it is read without running the file:

       rows = 16384
       cols = 4096
       VARIANTS = {"small": {"rows": 24, "cols": 320}, "odd1": {"rows": 7, "cols": 33}}

2. `get_small_inputs()`, and `get_small_init_inputs()` where the constructor's arguments change too: they return the
   lists at small shapes. For files whose sizes are no module-level integers.

`CUDA_GRAPH = True` says that the module is called under a CUDA graph: runtimes are then those of the device alone, and what
the host does for a call counts for nothing. Without it a runtime is the larger of both (docs/evaluator.md).

What a file does not give is derived by trial (`mtmc.task.shapes`).
"""
