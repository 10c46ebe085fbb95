"""mtmc optimize."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from mtmc.cli.command import CUT_SHORT, Command
from mtmc.cli.documents import run_document
from mtmc.errors import ConfigError, MtmcError, TaskError
from mtmc.files import write_whole

_WHOLE = {"auto": None, "yes": True, "no": False}


def _optimize(arguments: argparse.Namespace, overrides: Sequence[str]) -> int:
    from mtmc.cli.console import progress_display
    from mtmc.cli.single import run_folder
    from mtmc.conf import make_search
    from mtmc.conf.whole import compose_whole

    config = compose_whole(overrides)
    keywords = make_search(config)
    make_model, make_inputs = find(arguments.model), find(arguments.inputs)
    model = _model(arguments.model, make_model)
    args, kwargs = _inputs(arguments.inputs, make_inputs)
    from mtmc.whole.optimize import optimize
    from mtmc.whole.record import Record

    name = type(model).__name__
    with run_folder(config.out, name) as folder, progress_display(name) as show:
        found = optimize(
            model,
            args,
            kwargs,
            whole=_WHOLE[arguments.whole],
            cache=arguments.cache,
            anew=config.out is not None,
            **keywords,
            out=folder,
            progress=show,
        )
        arguments.answer.update(_document(found.mtmc, folder))
        print(_told(found, folder))
        record = found.mtmc
        ended = (
            record.cut_short if isinstance(record, Record) else record.result is not None and record.result.cut_short
        )
    return CUT_SHORT if ended else 0


def find(text: str) -> Callable[[], Any]:
    """The function that "package.module:name" names; modules in the present folder are found too.

    Raises: ConfigError where there is none.
    """
    module_name, _, name = text.partition(":")
    if not module_name or not name:
        raise ConfigError(f"{text!r} names no function: write it as package.module:function")
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and (module_name == error.name or module_name.startswith(f"{error.name}.")):
            hint = "run mtmc in the folder that it is in, or install it"
            raise ConfigError(f"there is no module {error.name!r} for {text!r}: {hint}") from error
        raise ConfigError(f"{module_name} cannot be imported: {error}") from error
    except MtmcError:
        raise
    except Exception as error:
        raise ConfigError(f"{module_name} cannot be imported: {_line(error)}") from error
    found = getattr(module, name, None)
    if found is None:
        raise ConfigError(f"{module_name} has no {name!r}: name a function of it that takes no arguments")
    if not callable(found):
        kind = type(found).__name__
        raise ConfigError(f"{text} is a {kind}, not a function: name one that takes no arguments")
    result: Callable[[], Any] = found
    return result


def _model(text: str, make: Callable[[], Any]) -> Any:
    import torch

    model = _called(text, make)
    if not isinstance(model, torch.nn.Module):
        raise TaskError(f"{text} returns a {type(model).__name__}: it has to return a torch.nn.Module")
    return model


def _inputs(text: str, make: Callable[[], Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional and keyword arguments of one call."""
    inputs = _called(text, make)
    if isinstance(inputs, tuple | list):
        return tuple(inputs), {}
    if isinstance(inputs, Mapping):
        return (), dict(inputs)
    kind = type(inputs).__name__
    raise TaskError(
        f"{text} returns a {kind}: a tuple of positional arguments or a dict of keyword arguments is needed"
    )


def _called(text: str, make: Callable[[], Any]) -> Any:
    try:
        return make()
    except MtmcError:
        raise
    except Exception as error:
        raise TaskError(f"{text} fails: {_line(error)}") from error


def _line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:500]}"


def _told(found: Any, folder: Path) -> str:
    """What came of it."""
    from mtmc.cli.console import summary
    from mtmc.whole.record import Record

    record = found.mtmc
    if isinstance(record, Record):
        return f"{record.text}\n\n{folder / 'pieces'} has a run for each piece, {folder / 'summary.json'} all figures"
    if record.result is None:
        return _of_cache(record, folder)
    return summary(record.result)


def _document(record: Any, folder: Path) -> dict[str, Any]:
    """What --json says of it: the run, or what the cache has, or the pieces of a whole model."""
    from mtmc.whole.record import Record

    if isinstance(record, Record):
        return {"folder": folder, **record.plain()}
    if record.result is not None:
        return run_document(record.result)
    return {"found": record.found, "reason": record.reason, "versions": list(record.versions), "folder": folder}


def _of_cache(record: Any, folder: Path) -> str:
    """What the cache has, whose version is written where that of a search would be."""
    told = f"{record.found}: --no-cache or out=FOLDER searches anew"
    if not record.versions:
        return f"{told}\nthe original is used: {record.reason}"
    write_whole(folder / "best.py", record.versions[0])
    return f"{told}\n{folder / 'best.py'} is the version"


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODULE:FUNCTION", help="a function that returns the model, a torch.nn.Module")
    parser.add_argument(
        "--inputs",
        metavar="MODULE:FUNCTION",
        required=True,
        help="a function that returns example inputs: a tuple of positional or a dict of keyword arguments",
    )
    parser.add_argument(
        "--no-cache",
        dest="cache",
        action="store_false",
        help="search even where the cache has what was found before (so does out=FOLDER), and keep nothing in it",
    )
    parser.add_argument(
        "--whole",
        choices=tuple(_WHOLE),
        default="auto",
        help="whether to search submodules one by one (auto: where the model is too large for one search)",
    )


def _settings_help() -> str:
    return "settings: those of mtmc search but task; budget=64 is short for budget.evaluations=64, of all searches together"


OPTIMIZE = Command(
    run=_optimize,
    arguments=_arguments,
    summary="find kernels for a live model, a whole network too",
    usage="MODULE:FUNCTION --inputs MODULE:FUNCTION [--whole auto|yes|no] [--no-cache] [SETTING=VALUE ...]",
    description="Search kernels for the submodules that take a model's time, and keep those with which the whole is faster."
    "\n\n  mtmc optimize models:make_model --inputs models:make_inputs budget=64 evaluator=gpu out=runs/model",
    epilog=_settings_help,
    overrides=True,
)
