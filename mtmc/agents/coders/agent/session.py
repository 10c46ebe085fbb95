"""What an agent has done so far in one edit: its drafts, what their checks found, its critiques, and how it ended.

Plain data; each step gives a new `Session`. Versions have names: "0" is the root and the numbers after it are the steps
of the lineage, the last of which is the parent; "d1", "d2", ... are the agent's own drafts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from mtmc.agents.coders.editing.reply import is_same
from mtmc.agents.coders.editing.task_text import reference_text
from mtmc.errors import CoderError
from mtmc.outcome import Diagnosis, Outcome
from mtmc.protocols import EditRequest
from mtmc.tree import source_hash


class Refused(CoderError):
    """A tool that did not do what it was called for, with the reason and a hint: what the model is told."""


@dataclass(frozen=True)
class Draft:
    """One draft.

    outcome: of its last check, None before that. diagnosis: why it fails, where that is known; on a repair the first
    draft comes with one. critique: what the agent itself said against it.
    """

    source: str
    outcome: Outcome | None = None
    diagnosis: Diagnosis | None = None
    critique: str = ""

    @property
    def ok(self) -> bool:
        """Whether its check found it right."""
        return self.outcome is not None and self.outcome.ok


@dataclass(frozen=True)
class End:
    """How the agent ended it. text: the source that it commits, or the reason why it gives up."""

    how: Literal["commit", "give_up"]
    text: str


@dataclass(frozen=True)
class Session:
    """An edit on its way.

    present: number of the present draft, from 1; 0 where there is none and the parent stands in its place.
    last_ok: number of the draft that was last found right, 0 for none. checks: evaluations asked for.
    exhausted: the trial has no evaluation left.
    """

    request: EditRequest
    drafts: tuple[Draft, ...] = ()
    present: int = 0
    last_ok: int = 0
    checks: int = 0
    exhausted: bool = False
    end: End | None = None

    @property
    def draft(self) -> Draft:
        """The present draft. Raises: Refused where there is none."""
        if not self.present:
            raise Refused("there is no draft yet: write one with the tool draft")
        return self.drafts[self.present - 1]

    @property
    def base(self) -> str:
        """The text that changes are made to: the present draft, or the parent."""
        return self.drafts[self.present - 1].source if self.present else self.request.source


def opened(request: EditRequest) -> Session:
    """A session at its start: without a draft; on a repair with the source that failed as the first one, and on a refinement
    with the right one that is to be made faster."""
    if request.right_source is not None:
        return Session(request, (Draft(request.right_source, outcome=request.right_outcome),), present=1)
    if request.feedback is None or request.failed_source is None:
        return Session(request)
    return Session(request, (Draft(request.failed_source, diagnosis=request.feedback),), present=1)


def with_draft(session: Session, source: str) -> Session:
    """The session with `source` as its present draft; one that was there before keeps its number and its check.

    Raises: Refused where it is the parent (comments and layout aside) or the present draft itself.
    """
    hash_ = source_hash(source)
    if is_same(source, session.request.source):
        raise Refused("this is the parent, unchanged: change something, or give up with the reason")
    if session.present and hash_ == source_hash(session.draft.source):
        raise Refused(f"this is the present draft d{session.present}, unchanged")
    for number, draft in enumerate(session.drafts, 1):
        if source_hash(draft.source) == hash_:
            return replace(session, present=number)
    return replace(session, drafts=(*session.drafts, Draft(source)), present=len(session.drafts) + 1)


def with_change(session: Session, draft: Draft) -> Session:
    """The session with its present draft replaced by `draft`, which has the same source."""
    at = session.present - 1
    return replace(session, drafts=(*session.drafts[:at], draft, *session.drafts[at + 1 :]))


def checked(session: Session, outcome: Outcome | None) -> Session:
    """The session after a check of the present draft; None where no evaluation was left for it."""
    if outcome is None:
        return replace(session, exhausted=True)
    draft = replace(session.draft, outcome=outcome, diagnosis=outcome.diagnosis)
    last_ok = session.present if outcome.ok else session.last_ok
    return replace(with_change(session, draft), last_ok=last_ok, checks=session.checks + 1)


def parent_number(request: EditRequest) -> int:
    """The parent's number in the lineage."""
    return len(request.history)


def version(session: Session, name: object) -> tuple[str, str]:
    """A version's label and source, by its name: 0, "2", "parent", "draft", "d1".

    Version 0 is the root where the parent is the root, and else the task's reference, from which the root was made.
    Raises: Refused for a name that there is not.
    """
    request, key = session.request, str(name).strip().lower()
    last = parent_number(request)
    if key == "draft" and session.present:
        key = f"d{session.present}"
    if key in ("parent", str(last)):
        return f"version {last}", request.source
    if key == "0":
        return "version 0", reference_text(request.task)
    if key.isdecimal() and int(key) < last:
        return f"version {int(key)}", request.history[int(key) - 1].source
    if key[:1] == "d" and key[1:].isdecimal() and 1 <= int(key[1:]) <= len(session.drafts):
        return f"draft {key}", session.drafts[int(key[1:]) - 1].source
    drafts = f", drafts d1 to d{len(session.drafts)}" if session.drafts else ", no draft yet"
    raise Refused(f"there is no version {str(name)[:40]!r}: there are 0 to {last}{drafts}")
