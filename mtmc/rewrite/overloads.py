"""overloads: torch's own ops, by the names that exports give them."""

from __future__ import annotations

from typing import Any


def overload(target: str) -> Any:
    """An op by the name that exports give it; None where it is none of torch's."""
    import torch

    space, _, rest = target.partition(".")
    name, _, overload = rest.partition(".")
    return getattr(getattr(getattr(torch.ops, space, None), name, None), overload, None)
