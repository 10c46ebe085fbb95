"""mtmc: Macro Thinking Micro Coding. Tree search over Triton kernel versions of a PyTorch module.

    from mtmc.search import search
    result = search("softmax", budget=32)
    print(result.best.speedup, result.best.runtime_kind)

Importing this package loads neither torch nor triton; they load on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mtmc.errors import MtmcError
from mtmc.task import Task, load_task
from mtmc.tree import Tree

if TYPE_CHECKING:
    from mtmc.dropin import load
    from mtmc.whole import optimize

__version__ = "0.1.0"
__all__ = ["MtmcError", "Task", "Tree", "__version__", "load", "load_task", "optimize"]


def __getattr__(name: str) -> Any:
    if name == "load":
        from mtmc.dropin import load

        return load
    if name == "optimize":
        from mtmc.whole import optimize

        return optimize
    raise AttributeError(f"module 'mtmc' has no attribute {name!r}; it has {', '.join(__all__)}")
