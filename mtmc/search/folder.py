"""What a run writes into its folder besides its store. All of it can be written again from the store."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mtmc.cuda import standalone
from mtmc.files import write_whole
from mtmc.syntax import canonical_text
from mtmc.task.tolerance import Tolerance
from mtmc.tree import ROOT_ID, KernelNode, Tree

if TYPE_CHECKING:
    from mtmc.export.record import RunRecord


def write_config(folder: Path, settings: Mapping[str, Any]) -> None:
    """config.yaml: the resolved settings, the seed and the versions of what ran."""
    from omegaconf import OmegaConf

    write_whole(folder / "config.yaml", OmegaConf.to_yaml(OmegaConf.create(dict(settings))))


def write_best(folder: Path, tree: Tree, guards: str | None, tolerance: Tolerance) -> None:
    """best.py: the best version so far, standalone. guards: what the coder's versions hold for. tolerance: the task's."""
    write_whole(folder / "best.py", handed_out(tree.best, guards, tolerance))


def handed_out(node: KernelNode, guards: str | None, tolerance: Tolerance) -> str:
    """A version's text as users get it, see `handed_out_text`, below a line with the contract that it was judged by. The
    root is the reference itself and needs neither that nor guards."""
    text = handed_out_text(node.source, node.plan is not None, None if node.id == ROOT_ID else guards)
    if node.id == ROOT_ID or (guards is None and tolerance.is_default):
        return text
    return f"# Compared with the reference by its task's tolerance, {tolerance.contract(node.outcome.metrics)}.\n{text}"


def handed_out_text(source: str, planned: bool, guards: str | None) -> str:
    """The text that was audited and run, with its guards, where they are known, and with what it needs of `mtmc.cuda`.

    planned: whether the version has a plan. One without may keep the module's tensors in a way of its own, so its guards
    are those of the inputs alone.
    """
    try:
        text = canonical_text(source)
        text = standalone(text)
    except (SyntaxError, ValueError):  # accepted by an evaluator that reads no Python, one for tests say
        text = source
    if guards is None:
        return text
    from mtmc.rewrite.guard_text import guarded
    from mtmc.rewrite.guards import guards_from_json

    found = guards_from_json(guards)
    return guarded(text, found if planned else found.of_inputs())


def write_nodes(folder: Path, tree: Tree) -> None:
    """nodes/ID.py: every version."""
    for node in tree:
        write_whole(folder / "nodes" / f"{node.id}.py", node.source)


def write_dumps(folder: Path, record: RunRecord) -> None:
    """The dumps of the tree: JSON, GraphML, HTML, pictures and the report."""
    from mtmc import export

    export.write_dumps(record, folder)
