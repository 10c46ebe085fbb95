"""lines: which line of the reference an op or an error comes from."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch.fx import Node

REFERENCE_FILE = "<reference>"
"""The name under which a reference's text is compiled for its export."""
_FRAME = re.compile(rf'File "{re.escape(REFERENCE_FILE)}", line (\d+)')


def lines_in(trace: str) -> list[int]:
    """The lines of the reference in a stack trace, outermost first."""
    return [int(number) for number in _FRAME.findall(trace)]


def line_of(node: Node) -> int | None:
    """The line that an op of an export comes from, or None where that is not known."""
    lines = lines_in(node.meta.get("stack_trace") or "")
    return lines[-1] if lines else None
