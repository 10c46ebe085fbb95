"""allowance: how long one gate of a version may take."""

from __future__ import annotations

import ast

from mtmc.syntax import tree_of

PATIENCE = 6.0
"""Times the seconds of a core that a gate may take, after which it is ended by the wall all the same. Where other work keeps
it from its core it loses nothing before that: beside networks that were being autotuned, an import of half a second took a
minute on an H200's host, and the fastest version of a ResNet-101 was not handed out."""
CALLS = 48
"""Of the class of a version, for which the seconds of a setting are meant; with more, a version has as many times more."""
MOST = 4.0


def seconds_for(timeout_s: float, source: str) -> float:
    """Seconds that a gate of a version may take: a DenseNet-201 of 103 kernels, each built for several shapes, is a minute's
    work where a block is a second's.

    timeout_s: as the setting has it. source: the version's file; a text that is no Python, or too deep, has just these.
    """
    try:
        tree = tree_of(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return timeout_s
    classes = (node for node in tree.body if isinstance(node, ast.ClassDef))
    calls = sum(isinstance(node, ast.Call) for each in classes for node in ast.walk(each))
    return timeout_s * min(MOST, max(1.0, round(calls / CALLS, 2)))
