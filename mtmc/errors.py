"""Every exception mtmc raises on purpose.

A bad *kernel* is never an exception, it is an `Outcome`. These are for bad input and missing means: each message
names the bad value and says how to fix it, and the command line turns it into one line and exit status 2.
"""

from __future__ import annotations


class MtmcError(Exception):
    """Base of all errors of mtmc; the message names the bad value and the fix."""


class ConfigError(MtmcError):
    """A setting that does not exist or has a value it cannot have."""


class TaskError(MtmcError):
    """A task that cannot be loaded, run or exported."""


class TooLarge(TaskError):
    """A task that needs more memory than is free."""


class RunError(MtmcError):
    """A run's folder or store that cannot be made, read or resumed."""


class CoderError(MtmcError):
    """A coder that could not turn (parent, action) into a whole child source."""


class BudgetSpent(CoderError):
    """A coder that may ask no model any more: what the run may spend on models is spent."""


class NoReply(CoderError):
    """A model that gave no reply to a question. tries: requests sent. seconds: all of them took, with the waits.
    may_pass: whether the same question may be answered later."""

    def __init__(self, message: str, tries: int = 0, seconds: float = 0.0, may_pass: bool = False) -> None:
        super().__init__(message)
        self.tries = tries
        self.seconds = seconds
        self.may_pass = may_pass


class ModelError(MtmcError):
    """A language model that cannot be used at all: no key, no such model, no server, no recorded reply."""


class ModelDown(ModelError):
    """A language model that has answered before, or whose server has, and has answered nothing for long: a search ends
    there and can be resumed."""


class EvaluatorError(MtmcError):
    """An evaluator whose own means are missing (no GPU, no recording, no compiler for the target)."""


CLOSED = "this evaluator is closed; open a new one to evaluate more"
"""What an `EvaluatorError` says of an evaluator that is asked after its end."""
