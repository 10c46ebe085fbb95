"""mtmc doctor."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mtmc.cli.command import Command
from mtmc.errors import ConfigError

if TYPE_CHECKING:
    from mtmc.chat import ModelSettings


def _doctor(arguments: argparse.Namespace, overrides: Sequence[str]) -> int:
    from mtmc.doctor import PACKAGES, able, examine

    asked = _model(overrides) if overrides else None
    width = max(len(name) for name in PACKAGES)
    findings = []
    for finding in examine(asked):
        findings.append(finding)
        answer = "yes" if finding.ok else "NO " if finding.needed else "no "
        print(f"{finding.what:<{width}}  {answer}  {finding.detail}", flush=True)
        if finding.fix:
            print(f"{'':<{width}}       to fix: {finding.fix}", flush=True)
    arguments.answer.update(able=able(findings), findings=findings)
    print()
    if able(findings):
        print("Searches can run here: mtmc search task=softmax")
        return 0
    lacking = ", ".join(finding.what for finding in findings if finding.needed and not finding.ok)
    print(f"No search can run here before this is fixed: {lacking}")
    return 1


def _model(overrides: Sequence[str]) -> ModelSettings:
    """The model to try. Raises: ConfigError for another setting than those of `model`, or where none is named."""
    from mtmc.chat import ModelSettings
    from mtmc.conf import change
    from mtmc.search import Budget

    other = [text for text in overrides if not text.startswith("model")]
    if other:
        raise ConfigError(f"mtmc doctor takes model.* only, not {other[0]!r}: mtmc doctor model.name=PROVIDER/MODEL")
    _, asked = change(Budget(), ModelSettings(), overrides)
    if not asked.name:
        raise ConfigError("no model is named: mtmc doctor model.name=PROVIDER/MODEL [model.api_base=URL]")
    return asked


def _no_arguments(parser: argparse.ArgumentParser) -> None:
    pass


DOCTOR = Command(
    run=_doctor,
    arguments=_no_arguments,
    summary="say what this machine can do, and why not",
    usage="[model.name=PROVIDER/MODEL ...]",
    description="Look at the installation, compile a small kernel for each target, run it under the interpreter, try\n"
    "each protection of the sandbox, and list GPUs and model keys (their names only). A model that is named is asked\n"
    "one short question. The exit status is 0 if the embedded default can run, and the model answers, else 1.",
    overrides=True,
)
