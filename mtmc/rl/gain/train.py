"""train: a whole training of a model of gains: from folders of recorded trees to its file and its card."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

from mtmc.agents.policies.learned.gain.boosted import Boosted, write_boosted
from mtmc.errors import ConfigError, RunError
from mtmc.rl.gain.crossed import Figures, crossed, crossed_figures, figures
from mtmc.rl.gain.data import Rows, read_trees, rows_of
from mtmc.rl.gain.fit import fit
from mtmc.rl.gain.settings import GainSettings
from mtmc.rl.train.card import CARD, flat, markdown_table, versions
from mtmc.rl.train.data import data_hash
from mtmc.rl.trees import RecordedTree

FILE = "weights.npz"
CROSSED, HELD_OUT = "cross-validation", "held out"


@dataclass(frozen=True)
class TrainedGains:
    """files: the model and its card. figures: by what they were found on, `CROSSED` and, where there are trees of other
    splits, `HELD_OUT`."""

    model: Boosted
    files: list[Path]
    figures: Mapping[str, Figures]


def train_gains(settings: GainSettings, out: Path, tell: Callable[[str], None], command: str) -> TrainedGains:
    """Train a model of gains on the trees of the split "train", and say how good it is on tasks that it has not seen.

    tell: of what is done. command: that asked for it, for the card.

    Raises: ConfigError for data that cannot be used, RunError where a folder cannot be read or written.
    """
    tell("reading the recorded trees")
    trees = read_trees(settings.data)
    mine = [tree for tree in trees if tree.split == "train"]
    if not mine:
        raise ConfigError(
            f"{', '.join(settings.data)} has {len(trees)} trees, none of them for train: record more tasks"
        )
    rows = rows_of(mine)
    found = {CROSSED: crossed_figures(rows, crossed(rows, settings, tell), settings.clip)}
    tell(f"the model itself: {len(rows)} transitions")
    model = fit(rows, settings, 0)
    others = [tree for tree in trees if tree.split != "train"]
    if others:
        found[HELD_OUT] = _held_out(model, others, settings.clip)
    about = {
        "folders": [Path(folder).name for folder in settings.data],
        "hash": data_hash([Path(folder).expanduser() for folder in settings.data]),
        "trees": Counter(tree.split for tree in trees),
        "hardware": Counter((tree.hardware, tree.root.outcome.runtime_kind or "unknown") for tree in mine),
    }
    return TrainedGains(model, _written(model, about, settings, found, out, command), found)


def _held_out(model: Boosted, trees: Sequence[RecordedTree], clip: float) -> Figures:
    rows = named_like(rows_of(trees), model)
    mean, spread = model.predict(rows.features)
    return figures(rows, mean.astype(np.float64), spread.astype(np.float64), clip)


def named_like(rows: Rows, model: Boosted) -> Rows:
    """Rows with the features that a model knows, in its order; those that the rows do not have are 0."""
    wanted = [*((0, name) for name in model.state_names), *((1, name) for name in model.action_names)]
    there = [*((0, name) for name in rows.state_names), *((1, name) for name in rows.action_names)]
    place = {each: at for at, each in enumerate(there)}
    features = np.zeros((len(rows), len(wanted)), np.float32)
    for column, each in enumerate(wanted):
        if each in place:
            features[:, column] = rows.features[:, place[each]]
    return Rows(features, rows.gains, rows.task, rows.node, rows.action, model.state_names, model.action_names)


def _written(
    model: Boosted,
    about: Mapping[str, Any],
    settings: GainSettings,
    found: Mapping[str, Figures],
    out: Path,
    command: str,
) -> list[Path]:
    folder = out / "best"
    plain: dict[str, Any] = {**asdict(settings), "data": about["folders"]}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_boosted(model, folder / FILE, json.loads(json.dumps({"settings": plain, "hash": about["hash"]})))
        (folder / CARD).write_text(gain_card(model, about, plain, found, command), encoding="utf-8")
    except OSError as error:
        raise RunError(f"{out} cannot be written ({error.strerror}): choose another folder with out=") from error
    return [folder / FILE, folder / CARD]


def gain_card(
    model: Boosted,
    about: Mapping[str, Any],
    settings: Mapping[str, Any],
    found: Mapping[str, Figures],
    command: str,
) -> str:
    """The card of a model, as markdown. about: of its data. settings: of the training. found: see `TrainedGains`."""
    trees = about["trees"]
    held_out = sum(count for split, count in trees.items() if split != "train")
    hardware = ", ".join(f"{count} on {name}, {kind} runtimes" for (name, kind), count in about["hardware"].items())
    columns = ("tasks", *asdict(next(iter(found.values()))))
    rows = [(name, *map(_number, asdict(each).values())) for name, each in found.items()]
    return "\n".join(
        [
            "# Predicted gain\n",
            "What an action is expected to gain at a version (log2 of the parent's over the child's runtime), and how far "
            "off that is. Made by\n",
            f"    {command}\n",
            f"on {date.today().isoformat()}, seed {settings['seed']}, {versions(('numpy',))}. A search takes it with "
            "`agents.gain=trained` (or its file) and a strategy that goes by expected values.\n",
            "## Data\n",
            f"Recorded trees {', '.join(about['folders'])}, hash {about['hash']}: the {trees['train']} trees for training "
            f"({hardware}). No task of another split was learned from.\n",
            "## Figures\n",
            f"`{CROSSED}`: {settings['folds']} folds by task of the trees for training, each predicted by a model that has "
            f"seen none of its transitions. `{HELD_OUT}`: the {held_out} trees for validation and tests, by the model "
            "itself. In log2 are error, nothing (the error of predicting no gain) and what is lost at a version by taking "
            "the action of the greatest prediction (lost), of the heuristic's, or one that is drawn. order is the rank "
            "correlation within a version, within the share of gains within one spread of their prediction.\n",
            markdown_table(columns, rows),
            "## Limits\n",
            f"- It knows the GPUs of its data: {hardware}. Estimated runtimes of a lab and other GPUs are nothing it "
            "learned from.",
            "- It predicts one step. What an action makes possible later is the policy's and the strategy's affair.",
            "- It says nothing of versions without a plan (a model wrote them); an action of unknown result is expected to "
            "gain nothing.",
            f"- Gains are clipped to {settings['clip']:g} either way, and failures were not learned from.\n",
            "## Settings\n",
            markdown_table(("setting", "value"), list(flat(settings).items())),
            f"{len(model.base) - 1} members and one for the spread, {model.trees} trees in all, over "
            f"{len(model.state_names)} features of a version and {len(model.action_names)} of an action.\n",
        ]
    )


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.3f}"
