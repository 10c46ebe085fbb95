"""failures: from what was raised to the kind of reason that stands in a row. Pure."""

from __future__ import annotations

import re

from mtmc.bench.row import Failure
from mtmc.errors import ConfigError, EvaluatorError, ModelError, TaskError
from mtmc.export.text import one_line

LENGTH = 300
"""Characters of a reason at most."""
_MEMORY = re.compile(r"memory\b.*\b(free|used up)\b|out.of.memory|MemoryError", re.IGNORECASE | re.DOTALL)

_LAST_TRIED = re.compile(r"last tried: (?:task \S+ )?(?P<reason>.*?)(?:\. Add to the file .*)?$", re.DOTALL)
"""Within the message on a task for which no small shapes were found: why not."""
_NAMED = re.compile(r"(the reference of )?task '?[\w.-]+'?:? ")


def failure_of(error: BaseException, loaded: bool, evaluated: bool) -> Failure:
    """The reason for a problem without a result.

    loaded: whether its task was there. evaluated: whether the evaluator was asked for anything: a task that fails before
    that cannot be exported by the coder.

    Raises: ConfigError, again: a setting that is wrong is wrong for every problem.
    """
    if isinstance(error, ConfigError):
        raise error
    message = one_line(_core(str(error)), LENGTH) or type(error).__name__
    if isinstance(error, MemoryError):
        return Failure("too_large", f"not enough memory: {message}")
    if isinstance(error, TaskError):
        if _MEMORY.search(str(error)):
            return Failure("too_large", message)
        return Failure("refused" if evaluated else "not_exported" if loaded else "not_loaded", message)
    if isinstance(error, EvaluatorError):
        return Failure("evaluator", message)
    if isinstance(error, ModelError):
        return Failure("model", message)
    return Failure("error", one_line(f"{type(error).__name__}: {message}", LENGTH))


def _core(message: str) -> str:
    """What a message says of the problem. Its name stands beside it, and how a task's author would fix it is not wanted."""
    tried = _LAST_TRIED.search(message)
    if tried is not None:
        return f"no small shapes run; the last ones tried, {tried['reason']}"
    named = _NAMED.match(message)
    core = message[named.end() :] if named else message
    return core.partition(". mtmc needs ")[0]
