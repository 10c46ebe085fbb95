"""How candidates' processes ended, and why, as far as that is known."""

from __future__ import annotations

import logging
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout

from mtmc.errors import MtmcError
from mtmc.evaluate.pool.job import JobResult

_log = logging.getLogger(__name__)

END_S = 10.0
"""Seconds for a killed process to be gone: a GPU takes a while to give up a context."""


def ended_result(process: Future[JobResult[None]]) -> JobResult[None] | None:
    """How a dismissed process ended; None if it is not gone yet."""
    try:
        return process.result(END_S)
    except FutureTimeout:
        return None


def why_ended(message: str, process: Future[JobResult[None]], killed: bool = False) -> str:
    """Why a process ended that never had a candidate: the exception that ended it, where there is one.

    message: what is known besides. killed: whether the evaluator ended it.
    """
    how, text = "it is still there", ""
    try:
        ended = process.result(END_S)
        how, text = ended.status + (f" ({ended.signal})" if ended.signal else ""), ended.output
        if killed:
            how = "it was ended by the evaluator"
    except FutureTimeout:
        pass
    except MtmcError as error:
        how, text = type(error).__name__, str(error)
    _log.debug("all that a process said which did not start:\n%s", text)
    return f"{message}: {exception_line(text) or how}"


def exception_line(text: str) -> str:
    """Of what a process wrote, the line that names the exception: the one behind the last traceback's frames. The last
    line of all where there is no traceback."""
    _, traceback, after = text.rpartition("Traceback (most recent call last):")
    lines = [line for line in after.splitlines() if line.strip()]
    if traceback:
        return next((line for line in lines if not line[0].isspace()), "")
    return lines[-1].strip() if lines else ""
