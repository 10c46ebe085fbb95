"""packing: one prompt and all its answers as one sequence, so that the model runs over it once.

Answers share their beginnings ("retile the linear kernel to 128x", then 64 or 128), so they are a tree of tokens that grows
from the end of the prompt. Each token of that tree stands in the sequence once, sees the prompt and the tokens on its own
way, and has the position that it would have if its answer stood alone: what the model computes for it is the same as if
each answer were run by itself.

    prompt: 7 8 9       answers: 1 2 5, 1 2 6, 3 5
    sequence: 7 8 9 1 2 3          the last token of an answer is predicted, never read
    edges: 9>1  1>2  2>5  2>6  9>3  3>5
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Pack:
    """A prompt and its answers.

    tokens, positions: [length]; the first `prompt` of them are the prompt's. above: [length - prompt], where in the
    sequence the token stands that each token of the tree follows.
    edge_from, edge_token: [edges]: which place of the sequence predicts, and what. path_answer, path_edge: [steps of all
    answers]: the edges that each answer consists of.
    answers: how many.
    """

    tokens: Ints
    positions: Ints
    prompt: int
    above: Ints
    edge_from: Ints
    edge_token: Ints
    path_answer: Ints
    path_edge: Ints
    answers: int

    def __len__(self) -> int:
        return len(self.tokens)

    def seen(self) -> Bools:
        """[length, length]: whether the token of a row sees that of a column."""
        length, prompt = len(self), self.prompt
        seen = np.zeros((length, length), np.bool_)
        seen[:prompt, :prompt] = np.tri(prompt, dtype=np.bool_)
        for row, above in enumerate(self.above, prompt):
            seen[row] = seen[above]  # of the last token of the prompt: the prompt
            seen[row, row] = True
        return seen


def pack(prompt: Sequence[int], answers: Sequence[Sequence[int]]) -> Pack:
    """Put a prompt and its answers into one sequence. Both have at least one token each; there may be no answers."""
    tokens, positions = list(prompt), list(range(len(prompt)))
    above: list[int] = []
    places: dict[tuple[int, int], int] = {}
    edges: dict[tuple[int, int], int] = {}
    path_answer: list[int] = []
    path_edge: list[int] = []
    for number, answer in enumerate(answers):
        at = len(prompt) - 1
        for step, token in enumerate(answer):
            path_answer.append(number)
            path_edge.append(edges.setdefault((at, token), len(edges)))
            if step == len(answer) - 1:
                break
            if (at, token) not in places:
                places[at, token] = len(tokens)
                tokens.append(token)
                positions.append(positions[at] + 1)
                above.append(at)
            at = places[at, token]
    return Pack(
        tokens=np.asarray(tokens, np.int64),
        positions=np.asarray(positions, np.int64),
        prompt=len(prompt),
        above=np.asarray(above, np.int64),
        edge_from=np.asarray([at for at, _ in edges], np.int64),
        edge_token=np.asarray([token for _, token in edges], np.int64),
        path_answer=np.asarray(path_answer, np.int64),
        path_edge=np.asarray(path_edge, np.int64),
        answers=len(answers),
    )


@dataclass(frozen=True, eq=False)
class Sheet:
    """Several packs side by side, filled up to the longest.

    tokens, positions: [packs, length]. seen: [packs, 1, length, length]. last: [packs], where each prompt ends.
    rows: [rows], places (in the flattened sheet) that predict anything. edge_row, edge_token: [edges]. path_answer,
    path_edge: as in `Pack`, numbered through all packs. answers: of all packs.
    """

    tokens: Ints
    positions: Ints
    seen: Bools
    last: Ints
    rows: Ints
    edge_row: Ints
    edge_token: Ints
    path_answer: Ints
    path_edge: Ints
    answers: int


def sheet_of(packs: Sequence[Pack]) -> Sheet:
    """Put packs side by side. What fills up sees only itself and is seen by nobody.

    The length is a multiple of 8, as attention on a GPU wants it.
    """
    length = -(-max(map(len, packs)) // 8) * 8
    tokens, positions = np.zeros((len(packs), length), np.int64), np.zeros((len(packs), length), np.int64)
    seen = np.broadcast_to(np.eye(length, dtype=np.bool_), (len(packs), 1, length, length)).copy()
    for at, each in enumerate(packs):
        tokens[at, : len(each)], positions[at, : len(each)] = each.tokens, each.positions
        seen[at, 0, : len(each), : len(each)] = each.seen()
    edges = np.cumsum([0, *(len(each.edge_from) for each in packs)])
    answers = np.cumsum([0, *(each.answers for each in packs)])
    places = _joined([each.edge_from + at * length for at, each in enumerate(packs)])
    rows, edge_row = np.unique(places, return_inverse=True)
    return Sheet(
        tokens=tokens,
        positions=positions,
        seen=seen,
        last=np.asarray([each.prompt - 1 for each in packs], np.int64),
        rows=rows,
        edge_row=edge_row.astype(np.int64),
        edge_token=_joined([each.edge_token for each in packs]),
        path_answer=_joined([each.path_answer + first for each, first in zip(packs, answers, strict=False)]),
        path_edge=_joined([each.path_edge + first for each, first in zip(packs, edges, strict=False)]),
        answers=int(answers[-1]),
    )


def _joined(parts: Sequence[Ints]) -> Ints:
    return np.concatenate(parts).astype(np.int64)
