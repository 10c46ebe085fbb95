"""The blocks of `suite=blocks`, one file each, in a folder that is their level. Nothing here is imported.

A block is a part of a published architecture in the precision that it runs at: a task in KernelBench's format with its
small and odd shapes in `VARIANTS` (see `mtmc.builtin_tasks`). Its docstring says what the block is, and after "Source:"
the paper or release with the numbers of the configuration. Weights are drawn in float32 and rounded by `__init__`.

To add one: a file. Its name stands in no other level, and its structure is one that no other file has.
"""
