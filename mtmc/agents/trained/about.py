"""about: what a trained coder says of itself, in a file beside its weights, and the form of its conversations."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from mtmc.errors import RunError

ABOUT, ADAPTER = "coder.json", "adapter"
FORMAT, VERSION = "mtmc lm coder", 1

TEMPLATE = (
    "{% for message in messages %}{{ '### ' + message['role'] + '\n' + message['content'] + '\n' }}"
    "{% if message['role'] == 'assistant' %}{{ eos_token }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '### assistant\n' }}{% endif %}"
)
"""Of conversations, for a base model that knows none."""


@dataclass(frozen=True)
class CoderAbout:
    """base, mark: name and mark of the base model. examples: of the kind of optimization in a prompt. reply: its tokens at
    most. All as in the training."""

    base: str
    mark: str
    examples: int
    reply: int


def folder_of(path: str) -> Path:
    """The folder with the weights: that of a training, or the one in it."""
    folder = Path(path).expanduser()
    return folder / ADAPTER if (folder / ADAPTER / ABOUT).is_file() else folder


def write_about(about: CoderAbout, folder: Path) -> Path:
    """Raises: OSError where it cannot be written."""
    file = folder / ABOUT
    file.write_text(
        json.dumps({"format": FORMAT, "version": VERSION, **asdict(about)}, indent=1) + "\n", encoding="utf-8"
    )
    return file


def read_about(folder: Path) -> CoderAbout:
    """Inverse of `write_about`. Raises: RunError where there is none, or one of a newer format."""
    try:
        data = json.loads((folder / ABOUT).read_text(encoding="utf-8"))
        form, version = data.pop("format"), data.pop("version")
        if form != FORMAT or version > VERSION:
            raise RunError(
                f"{folder / ABOUT} is {form} {version}, this mtmc reads {FORMAT} up to {VERSION}: upgrade mtmc"
            )
        return CoderAbout(**data)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        hint = "name the folder of a training, mtmc train coder=..."
        raise RunError(f"there is no trained coder in {folder} ({error}): {hint}") from error
