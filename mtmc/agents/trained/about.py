"""about: what a trained coder says of itself, in a file beside its weights, and the form of its conversations."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

from mtmc.errors import RunError
from mtmc.stamped import read_stamped, write_stamped

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
    return write_stamped(folder / ABOUT, FORMAT, VERSION, asdict(about))


def read_about(folder: Path) -> CoderAbout:
    """Inverse of `write_about`. Raises: RunError where there is none, or one of a newer format."""
    try:
        return CoderAbout(**read_stamped(folder / ABOUT, FORMAT, VERSION))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        hint = "name the folder of a training, mtmc train coder=..."
        raise RunError(f"there is no trained coder in {folder} ({error}): {hint}") from error
