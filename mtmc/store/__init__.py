"""The run's store: one SQLite file, or one schema of a PostgreSQL server. All else in the run's folder follows from it.

Crash-safe: each record is one transaction, so a killed process loses at most the step it was in
(and what was cheaper to find than to write, see `database.CHEAP_SECONDS`).
Idempotent: records are keyed by trial id and attempt, or by a source's hash, and writing one twice changes nothing.
What a trial finds (its edits, its outcomes) is recorded as it comes; what it means (nodes, ends of trials) is recorded
for a whole batch in one transaction. So a run that was killed finds its batch in flight, with all that was paid for.

    run_store.py      Store: create, open, read or copy a run; its tables, each in a file of its own:
    facts.py          what is known of the run as a whole: task, settings, hardware, guards
    nodes.py          the tree, and what may be done to each version
    batches.py        what was asked for together, and how each trial ended
    attempts.py       each call of a coder
    events.py         what happened, in order
    evaluations.py    what each evaluation found, once per source and gate
    model_calls.py    questions to a language model and their answers
    model_requests.py what each request to a language model has taken, or may have
    rows.py           what is recorded of a batch, as frozen data
    in_flight.py      which trials are under way, and how far each has come
    database.py       an open database: transactions, what may wait, errors
    schema.py         the tables, in the words of SQLite and of PostgreSQL
    backend.py        the protocol of a run's database, and SQLite
    postgres.py       a run on a PostgreSQL server, which its folder names
    folder_lock.py    one process at a time works on a run
"""

from __future__ import annotations

from mtmc.store.attempts import coding_cost
from mtmc.store.backend import POINTER_NAME, STORE_NAME, has_run, runs_below
from mtmc.store.folder_lock import LOCK_NAME, FolderLock, holder_since
from mtmc.store.in_flight import InFlight
from mtmc.store.rows import Attempt, Batch, Legal, NewNode, TrialEnd, TrialRow
from mtmc.store.run_store import ROOT_TRIAL, Store, check_unused, copy_run
from mtmc.store.schema import SCHEMA_VERSION

__all__ = [
    "LOCK_NAME",
    "POINTER_NAME",
    "ROOT_TRIAL",
    "SCHEMA_VERSION",
    "STORE_NAME",
    "Attempt",
    "Batch",
    "FolderLock",
    "InFlight",
    "Legal",
    "NewNode",
    "Store",
    "TrialEnd",
    "TrialRow",
    "check_unused",
    "coding_cost",
    "copy_run",
    "has_run",
    "holder_since",
    "runs_below",
]
