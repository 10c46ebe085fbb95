"""syntax: `ast.parse` for several threads at once."""

from __future__ import annotations

import ast
import logging
import threading

_log = logging.getLogger(__name__)
_parsing = threading.Lock()


def parse(source: str) -> ast.Module:
    """The syntax tree of a text.

    Up to Python 3.12 two threads that parse at a time count each other's depth and raise SystemError; so one at a time
    here, and once more where other code (triton, torch) was parsing.

    Raises: SyntaxError or ValueError if the text is no Python.
    """
    with _parsing:
        while True:
            try:
                return ast.parse(source)
            except SystemError:
                _log.debug("another thread was parsing: once more")
