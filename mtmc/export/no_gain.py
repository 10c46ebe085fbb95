"""Why a search found nothing that is faster: pure."""

from __future__ import annotations

from collections import Counter

from mtmc.export.text import one_line
from mtmc.tree import ROOT_ID, Tree


def why_no_gain(tree: Tree) -> str:
    """Why the root is the best version, in one sentence: what became of the others, and the first diagnosis of a failure.

    "" where another version is the best.
    """
    if tree.best.id != ROOT_ID:
        return ""
    if tree.root.outcome.undecided:
        return tree.root.outcome.undecided
    versions = [node for node in tree if node.id != ROOT_ID]
    if not versions:
        return "no version is faster: none was made"
    failed = [node for node in versions if not node.outcome.ok]
    told = (
        f"no version is faster: {len(versions) - len(failed)} of {len(versions)} are right and none beats the reference"
    )
    if not failed:
        return told
    counts = Counter(node.outcome.status.replace("_", " ") for node in failed)
    told += f"; {len(failed)} failed ({', '.join(f'{count} {status}' for status, count in counts.most_common())})"
    diagnosed = next((node for node in failed if node.outcome.diagnosis is not None), None)
    if diagnosed is None or diagnosed.outcome.diagnosis is None:
        return told
    found = diagnosed.outcome.diagnosis
    return (
        f"{told}, the first one, version {diagnosed.id}, in {found.stage}: {found.kind}: {one_line(found.message, 300)}"
    )
