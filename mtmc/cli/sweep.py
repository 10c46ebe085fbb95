"""mtmc search -m: many runs, by Hydra's sweeper and launcher.

All runs are checked before the first one starts; runs with the same evaluator share it. A run that fails does not end
the sweep: its folder says why in error.txt, and the sweep's exit status is that of bad input.
"""

from __future__ import annotations

import dataclasses
import math
import os
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mtmc.cli.single import run, run_folder
from mtmc.cli.sweep_evaluator import SweepEvaluator, evaluator_of, renew_evaluator, sweep_evaluator
from mtmc.cli.sweep_report import report_sweep
from mtmc.conf import SearchConfig
from mtmc.conf.overrides import launcher_of, parse, sweeper_of
from mtmc.errors import ConfigError, MtmcError, RunError
from mtmc.files import write_whole
from mtmc.redaction import redact

_FOLDER_SETTING = "hydra.sweep.dir"
"""Hydra's name of a sweep's folder; mtmc calls it out."""
_DIRECTION = "hydra.sweeper.direction"
ON_RAY = "mtmc_ray"
"""Our launcher, see `mtmc.cli.sweep_on_ray`."""


def run_sweep(overrides: Sequence[str], answer: dict[str, Any], config_dir: str = "") -> int:
    """Run every combination of the settings' values, or what another sweeper of Hydra chooses; report on all, return the
    exit status. answer: what --json says. config_dir: a folder with more config files.

    Raises: ConfigError, TaskError or EvaluatorError for any run that could not start, before one does; RunError for a
    folder that is already used.
    """
    from mtmc import conf

    texts, configs = conf.check_sweep(overrides, config_dir)
    given = parse(overrides, sweep=True, added=[_name(text) for text in overrides])
    sweeper = sweeper_of(given)
    with sweep_evaluator() as shared:
        _check(configs, launcher_of(given) == ON_RAY, shared)
        out = _out(configs, texts)
        with run_folder(out, "sweep") as folder:
            count = len(configs) if sweeper == "basic" else None
            print(f"{count or 'several'} runs into {folder}", file=sys.stderr)
            kept = [text for text in texts if _name(text) not in ("out", _FOLDER_SETTING)]
            _launch([*kept, *_direction(sweeper, texts)], folder, config_dir)
            return report_sweep(folder, answer, count)


def _check(configs: Sequence[SearchConfig], elsewhere: bool, shared: SweepEvaluator) -> None:
    """Load the tasks of all runs and open their evaluators; the last one stays open. elsewhere: on other machines, which may
    have what this one has not: there they are opened.

    Raises: as `run_sweep`.
    """
    from mtmc.conf import make_parts
    from mtmc.search.components import opened
    from mtmc.task import load_task

    for config in configs:
        parts = make_parts(config)
        load_task(config.task)  # all that may be wrong, before anything is opened
        if elsewhere:
            if config.evaluator.name == "ray":
                hint = "name what each run opens on its machine, evaluator=lab or evaluator=gpu"
                raise ConfigError(f"evaluator=ray cannot be used with hydra/launcher={ON_RAY}: {hint}")
            continue
        opened(shared.of(parts["evaluator"])).close()


def _direction(sweeper: str, texts: Sequence[str]) -> list[str]:
    """What tells Optuna that the objective, the speedup, is to be large; nothing where that is said already."""
    said = any(_name(text) == _DIRECTION for text in texts)
    return [f"{_DIRECTION}=maximize"] if sweeper == "optuna" and not said else []


def sweep_job(composed: Any) -> float:
    """One run of a sweep, as Hydra's launcher calls it, in this process or in another: the speedup of its best version over
    the root, the objective of a sweeper that has one; not a number for a run that failed. composed: a `DictConfig`."""
    from hydra.core.hydra_config import HydraConfig

    from mtmc import conf
    from mtmc.cli.console import one_line_summary

    hydra = HydraConfig.get()
    folder = Path(hydra.runtime.output_dir)
    name = f"run {hydra.job.num} ({', '.join(hydra.overrides.task)})"
    try:
        config = dataclasses.replace(conf.settings_of(composed), out=str(folder))
        result = run(config, lines=False, evaluator=evaluator_of(config))
        print(f"{name}: {one_line_summary(result)}")
        return math.nan if result.best.speedup is None else result.best.speedup
    except MtmcError as error:
        renew_evaluator()
        record_failure(folder, name, str(error), str(error))
    except Exception as error:  # a bug is no reason to lose the other runs
        renew_evaluator()
        record_failure(folder, name, f"{type(error).__name__}: {error}", traceback.format_exc())
    return math.nan


def record_failure(folder: Path, name: str, reason: str, record: str) -> None:
    """Say why a run failed, and keep it in its folder."""
    from mtmc.export.sweep import ERROR_FILE

    (folder / ERROR_FILE).write_text(f"{record.strip()}\n", encoding="utf-8")
    print(f"mtmc: {name} failed: {reason}", file=sys.stderr)


def _out(configs: Sequence[SearchConfig], texts: Sequence[str]) -> str | None:
    """The folder of the whole sweep, None where none is given: `out`, or Hydra's own name for it.

    Raises: ConfigError for several folders; RunError for one that is not empty.
    """
    folders = {config.out for config in configs if config.out is not None}
    folders |= {str(parse([text])[0].value()) for text in texts if _name(text) == _FOLDER_SETTING}
    if len(folders) > 1:
        raise ConfigError(
            f"a sweep has one folder for all its runs together, not {len(folders)}: give one as out=FOLDER"
        )
    if not folders:
        return None
    [out] = folders
    folder = Path(out).expanduser()
    try:
        if folder.exists() and any(folder.iterdir()):
            raise RunError(f"the folder {folder} is already used: choose another one for the sweep")
    except OSError as error:
        raise RunError(f"the folder {folder} cannot be read ({error.strerror}): choose another one") from error
    return out


def _name(text: str) -> str:
    return text.lstrip("+").partition("=")[0]


def _launch(texts: Sequence[str], folder: Path, config_dir: str) -> None:
    import hydra
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    from mtmc import conf

    conf.register()
    decorate = hydra.main(
        version_base=conf.VERSION_BASE, config_path=f"pkg://{conf.MODULE}", config_name=conf.CONFIG_NAME
    )
    place = conf.quoted(str(folder.absolute()))
    more = ["--config-dir", str(Path(config_dir).expanduser().absolute())] if config_dir else []
    with _command_line(["mtmc", "--multirun", *more, *texts, f"{_FOLDER_SETTING}={place}"]):
        try:
            decorate(sweep_job)()
        except (HydraException, OmegaConfBaseException) as error:
            plugins = "plug-ins for Optuna and joblib come with pip install 'mtmc[sweep]'"
            raise ConfigError(f"Hydra cannot run this sweep ({plugins}): {error}") from error
        except OSError as error:
            raise RunError(f"the sweep in {folder} cannot be written ({error}): choose another folder") from error
    record = folder / "multirun.yaml"  # Hydra's, of all overrides
    if record.exists():
        write_whole(record, redact(record.read_text(encoding="utf-8")))


@contextmanager
def _command_line(argv: list[str]) -> Iterator[None]:
    """What `hydra.main` reads: the command line from sys.argv, and from the environment that it shall hand over errors
    as they are instead of printing them and ending the process."""
    name = "HYDRA_FULL_ERROR"
    old_argv, old_value = sys.argv, os.environ.get(name)
    sys.argv, os.environ[name] = argv, "1"
    try:
        yield
    finally:
        sys.argv = old_argv
        if old_value is None:
            del os.environ[name]
        else:
            os.environ[name] = old_value
