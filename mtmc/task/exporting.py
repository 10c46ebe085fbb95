"""exporting: what torch.export leaves to its callers: quiet, and a failure in one line."""

from __future__ import annotations

import contextlib
import io
import linecache
import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

_NOISY_LOGGERS = ("torch.export", "torch._export", "torch.fx.experimental.symbolic_shapes", "torch._dynamo")


def library_folders() -> tuple[str, ...]:
    """Folders whose frames in a trace are not the user's own: torch and mtmc."""
    import torch

    return (os.path.dirname(torch.__file__) + os.sep, os.path.dirname(os.path.dirname(__file__)) + os.sep)


def export_failure(error: BaseException) -> str:
    """One line on an exception of torch.export: the user's file, line and code it came from, and what it says."""
    where = ""
    trace = error.__traceback__
    while trace is not None:
        filename = trace.tb_frame.f_code.co_filename
        if not filename.startswith(library_folders()):
            code = linecache.getline(filename, trace.tb_lineno).strip()
            where = f"{os.path.basename(filename)}, line {trace.tb_lineno}" + (f", `{code}`: " if code else ": ")
        trace = trace.tb_next
    text = str(error).strip().splitlines()
    return f"{where}{type(error).__name__}: {text[0].strip() if text else 'no message'}"


@contextmanager
def quiet_export() -> Iterator[None]:
    """Keep the warnings and the log of torch.export to ourselves, and the graph that it prints where it fails.

    What failed is then said in one line (`export_failure`). Not for several threads at once.
    """
    loggers = [logging.getLogger(logger) for logger in _NOISY_LOGGERS]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL + 1)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
