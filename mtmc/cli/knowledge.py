"""mtmc knowledge: what helped in runs, as a file for other searches."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from mtmc.cli.command import Command


def _knowledge(arguments: argparse.Namespace, overrides: Sequence[str]) -> int:
    from mtmc.agents.facts.harvest import entries_of
    from mtmc.export.text import factor
    from mtmc.files import write_whole
    from mtmc.knowledge import Entry, from_text, merged, to_text

    out = Path(arguments.out).expanduser()
    found: list[Entry] = []
    if out.exists():
        found += from_text(out.read_text(encoding="utf-8", errors="replace"), str(out))
    before = len(found)
    for folder in arguments.runs:
        found += entries_of(Path(folder).expanduser())
    entries = merged(found)
    write_whole(out, to_text(entries))
    arguments.answer.update(file=out, entries=len(entries), before=before, runs=len(arguments.runs))
    many, runs = len(entries), len(arguments.runs)
    print(f"{many} {'entry' if many == 1 else 'entries'} of {runs} {'run' if runs == 1 else 'runs'} in {out}")
    for entry in entries[:10]:
        print(
            f"  {factor(entry.gain)} {entry.runtime_kind}  {entry.sentence}  ({entry.task}, {entry.dtype}, {entry.hardware})"
        )
    return 0


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", metavar="RUN", nargs="+", help="the folder of a run")
    parser.add_argument("--out", metavar="FILE", required=True, help="the file to write; entries that it has are kept")


KNOWLEDGE = Command(
    run=_knowledge,
    arguments=_arguments,
    summary="collect what helped in runs, for the prompts of other searches",
    usage="RUN [RUN ...] --out FILE",
    description="Each entry is a pair of a version and a faster child of it, with the action, shapes, dtype, GPU and gain.\n"
    "Of a run that verified versions it has those that passed. A search tells its models of the nearest entries:\n"
    "mtmc search task=softmax coder=llm agents.knowledge=FILE model.name=...",
)
