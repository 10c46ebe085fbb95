"""card: the model card of trained weights, as markdown: what made them, from what, and how good they are."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from datetime import date
from importlib import metadata
from typing import Any

from mtmc import __version__
from mtmc.rl.train.validate import Validation

CARD = "model_card.md"
"""Its file, beside the weights."""
PACKAGES = ("torch", "numpy", "transformers", "peft")


def model_card(
    command: str,
    about: Mapping[str, Any],
    settings: Mapping[str, Any],
    scores: Mapping[str, Validation],
    best: tuple[int, int, int],
) -> str:
    """command: that made the weights. about: the trees, see `mtmc.rl.train.data.Data`. settings: of the training, as plain
    data. scores: on the validation trees, by what gave the priors. best: unit of the weights, how many were
    done, and of how many."""
    trees, transitions = about["trees"], about["transitions"]
    hardware = ", ".join(f"{count} on {name}, {kind}" for (name, kind), count in about["hardware"].items())
    cut = "" if best[1] == best[2] else f" The time was up after unit {best[1]}."
    start = "" if best[0] else " Unit 0 is before this training: these are the priors called start below."
    budget = settings["budget"]
    return "\n".join(
        [
            f"# Policy `{settings['policy']['name']}` of mtmc\n",
            "It gives the legal optimizations of a kernel version their prior probabilities. Made by\n",
            f"    {command}\n",
            f"on {date.today().isoformat()}, seed {settings['seed']}, {versions(PACKAGES)}. The weights are those of unit "
            f"{best[0]} of {best[2]}, the best on the validation "
            f"trees.{cut}{start}\n",
            "## Data\n",
            f"Recorded trees {', '.join(about['folders'])}, hash {about['hash']}: {trees['train']} trees with "
            f"{transitions['train']} known transitions for training, {trees['validation']} with "
            f"{transitions['validation']} for validation ({hardware}).\n",
            "## Score\n",
            f"On the validation trees, searches replayed with {budget} evaluations, {settings['seeds']} seeds. Score: share "
            "of the best known log2 speedup that a search has found, averaged over its evaluations; evaluations: to 95% of "
            f"the best known speedup ({budget + 1} where it was not reached); greedy: the share that the greedy way "
            "alone gets.\n",
            markdown_table(
                ("priors", "score", "evaluations", "greedy"), [_row(name, each) for name, each in scores.items()]
            ),
            "## Settings\n",
            markdown_table(("setting", "value"), list(flat(settings).items())),
        ]
    )


def earlier_text(card: str) -> str:
    """A section for the card of weights that an earlier training began. card: of that; it may have such a section itself.

    The commands stand there with the last training first, as `commands` reads them.
    """
    lines = "\n".join(f"    {command}" for command in commands(card))
    return f"\n## Began with\n\nThe weights of these trainings, the last one first:\n\n{lines}\n" if lines else ""


def commands(card: str) -> list[str]:
    """The commands that made the weights of a card, the last one first; none of a card that is not ours."""
    return [line.strip() for line in card.splitlines() if line.startswith("    mtmc train ")]


def versions(packages: Sequence[str]) -> str:
    """mtmc, Python and those packages that are installed, each with its version."""
    found = [f"mtmc {__version__}", f"Python {platform.python_version()}"]
    for name in packages:
        try:
            found.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            continue
    return ", ".join(found)


def _row(name: str, found: Validation) -> tuple[str, str, str, str]:
    return name, f"{found.score:.3f}", f"{found.evaluations:.2f}", f"{found.greedy:.3f}"


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A table of markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines) + "\n"


def flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings by their dotted names, as a user types them."""
    found: dict[str, Any] = {}
    for name, value in settings.items():
        found |= flat(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {f"{prefix}{name}": value}
    return found
