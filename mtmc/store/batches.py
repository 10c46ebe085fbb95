"""Batches: the tables of a run's store that have what was asked for together, and how each trial ended."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from mtmc.protocols import Trial
from mtmc.store.database import Database
from mtmc.store.nodes import insert_nodes
from mtmc.store.rows import Batch, NewNode, TrialEnd, TrialRow


class BatchTable(Database):
    """A database with the tables of batches and trials."""

    def begin_batch(self, batch: Batch) -> None:
        """Record the trials of a batch before they start. One without trials has its seconds already."""
        with self._writing() as connection:
            facts = (batch.id, batch.asked, batch.seconds, batch.after)
            connection.execute("INSERT INTO batches VALUES (?, ?, ?, ?, NULL) ON CONFLICT DO NOTHING", facts)
            rows = [
                (row.trial.id, batch.id, row.trial.node_id, row.trial.action_index, row.allowance)
                for row in batch.trials
            ]
            query = "INSERT INTO trials VALUES (?, ?, ?, ?, ?, NULL, NULL, NULL, NULL) ON CONFLICT DO NOTHING"
            connection.executemany(query, rows)

    def end_batch(
        self, batch_id: int, ends: Mapping[int, TrialEnd], nodes: Sequence[NewNode], seconds: float, ended: int
    ) -> None:
        """Record how the trials of a batch ended (by trial id) and the nodes they made: all of it or nothing.

        ended: see `Batch`.
        """
        with self._writing() as connection:
            insert_nodes(connection, nodes)
            connection.executemany(
                "UPDATE trials SET kind = ?, child_id = ?, evaluations = ?, reason = ? WHERE id = ? AND kind IS NULL",
                [
                    (end.kind, end.child_id, end.evaluations, self.secrets.redact(end.reason), trial_id)
                    for trial_id, end in ends.items()
                ],
            )
            query = "UPDATE batches SET seconds = ?, ended = ? WHERE id = ? AND seconds IS NULL"
            connection.execute(query, (seconds, ended, batch_id))

    def batches(self) -> Iterator[Batch]:
        """All batches in the order in which they were asked for, with their trials."""
        rows: dict[int, list[TrialRow]] = {}
        columns = "batch, id, node_id, action_index, allowance, kind, child_id, evaluations, reason"
        query = f"SELECT {columns} FROM trials ORDER BY id"
        for batch, trial_id, node_id, index, allowance, kind, child_id, evaluations, reason in self._all(query):
            end = None if kind is None else TrialEnd(kind, child_id, evaluations, reason)
            rows.setdefault(batch, []).append(TrialRow(Trial(trial_id, node_id, index), allowance, end))
        ordered = self._has("batches.ended")
        order = "after, ended" if ordered else "id, CASE WHEN seconds IS NULL THEN NULL ELSE id END"
        for batch, asked, seconds, *place in self._all(f"SELECT id, asked, seconds, {order} FROM batches ORDER BY id"):
            after, ended = place
            yield Batch(batch, asked, tuple(rows.get(batch, ())), after, seconds, ended)
