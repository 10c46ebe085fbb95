"""train: a whole training of a coder: base, supervised fine-tuning, GRPO; samples before, between and after."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mtmc.agents.trained.about import ADAPTER, TEMPLATE, CoderAbout, write_about
from mtmc.errors import RunError
from mtmc.protocols import Evaluator
from mtmc.rl.coder.data import CoderData, load_coder_data, shortest_requests
from mtmc.rl.coder.results import report_text, write_curves, write_samples, write_table
from mtmc.rl.coder.rewards import Judge
from mtmc.rl.coder.samples import Sample, means, take_samples
from mtmc.rl.coder.settings import CoderSettings
from mtmc.rl.coder.trainers import Row, Trainee, Watcher, run_grpo, run_sft
from mtmc.rl.train.card import CARD, versions

if TYPE_CHECKING:
    from mtmc.agents.policies.learned.lm.base import Base

PACKAGES = ("torch", "transformers", "peft", "trl", "triton")

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class CoderResult:
    """files: what was written. scores: stage -> mean rewards of the samples, see `samples.means`."""

    files: list[Path]
    scores: dict[str, dict[str, Any]]


def train(
    base: str,
    settings: CoderSettings,
    evaluator: Evaluator,
    out: Path,
    watch: Watcher,
    tell: Callable[[str], None],
    command: str = "",
) -> CoderResult:
    """Train a coder. base: see `mtmc.agents.policies.learned.lm.base`. evaluator: of replies; the caller closes it.
    watch: told of each step. tell: of each stage. command: for the model card.

    Raises: ModelError where a package or the base is missing, ConfigError and RunError as `load_coder_data`, RunError for an
    adapter that is not there or of another base or rank, EvaluatorError.
    """
    from mtmc.agents.policies.learned.lm.base import load_base, needed

    needed(("trl", "datasets", "transformers", "peft"), extra="trl")
    loaded = load_base(base)
    if loaded.tokenizer.chat_template is None:
        loaded.tokenizer.chat_template = TEMPLATE
    data = _data(loaded, settings, tell)
    trainee = _trainee(loaded, settings)
    judge = Judge(evaluator)
    rows: list[Row] = []
    samples: list[Sample] = []
    asked = shortest_requests(data.test or data.train, settings.samples)

    def note(row: Row) -> None:
        rows.append(row)
        write_table(rows, out)  # a step can take half a minute, and what ends the process takes no step along
        watch(row)

    def sample(stage: str) -> None:
        if asked:
            tell(f"samples of stage {stage}")
            samples.extend(take_samples(trainee, asked, judge, stage, settings.reply))

    def written() -> list[Path]:
        return _written(trainee, loaded, settings, data, rows, samples, out, command)

    try:
        out.mkdir(parents=True, exist_ok=True)
        sample("start" if settings.adapter else "base")
        if settings.sft.steps:
            tell("supervised fine-tuning")
            run_sft(trainee, data.train, settings, out / "trl", note)
            sample("sft")
        if settings.grpo.steps:
            written()  # what comes now cannot take it along
            tell("GRPO")
            run_grpo(trainee, data.train, settings, judge, out / "trl", note)
            sample("grpo")
        files = written()
    except OSError as error:
        raise RunError(f"{out} cannot be written ({error}): choose another folder with out=") from error
    return CoderResult(files, means(samples))


def _data(base: Base, settings: CoderSettings, tell: Callable[[str], None]) -> CoderData:
    """The edits, and how many they are is told. Raises: as `load_coder_data`."""
    tell("reading the edits")
    data = load_coder_data(settings, base.tokenizer)
    train, test = data.about["train"], data.about["test"]
    tell(
        f"{train['edits']} edits of {train['tasks']} tasks to learn from; {test['edits']} of {test['tasks']} for samples"
    )
    tell(f"{data.about['too_long']} are too long and left out")
    return data


def _trainee(base: Base, settings: CoderSettings) -> Trainee:
    from mtmc.agents.policies.learned.lm.adapter import read_weights, set_adapter_weights, with_adapter
    from mtmc.agents.policies.learned.lm.base import device_of

    if base.tokenizer.pad_token_id is None:
        base.tokenizer.pad_token = base.tokenizer.eos_token
    model = with_adapter(base, settings.rank, settings.alpha, settings.seed)
    if settings.adapter:
        set_adapter_weights(model, read_weights(Path(settings.adapter).expanduser()))
    return Trainee(model.to(device_of(settings.device)), base.tokenizer)


def _written(
    trainee: Trainee,
    base: Base,
    settings: CoderSettings,
    data: CoderData,
    rows: list[Row],
    samples: list[Sample],
    out: Path,
    command: str,
) -> list[Path]:
    from mtmc.agents.policies.learned.lm.adapter import write_weights

    folder = out / ADAPTER
    folder.mkdir(exist_ok=True)
    about = {
        "base": f"{base.name} (mark {base.mark})",
        "versions": versions(PACKAGES),
        "data": data.about,
        "settings": asdict(settings),
    }
    card = folder / CARD
    card.write_text(report_text(command, about, rows, samples), encoding="utf-8")
    made = CoderAbout(base.name, base.mark, settings.examples, settings.reply)
    files = [*write_weights(trainee.model, base.name, folder), write_about(made, folder), card]
    return [*files, *write_curves(rows, out), *write_samples(samples, out)]
