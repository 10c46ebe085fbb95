"""mtmc doctor."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from mtmc.cli.command import Command


def _doctor(arguments: argparse.Namespace, overrides: Sequence[str]) -> int:
    from mtmc.doctor import PACKAGES, able, examine

    width = max(len(name) for name in PACKAGES)
    findings = []
    for finding in examine():
        findings.append(finding)
        answer = "yes" if finding.ok else "NO " if finding.needed else "no "
        print(f"{finding.what:<{width}}  {answer}  {finding.detail}", flush=True)
        if finding.mend:
            print(f"{'':<{width}}       to mend: {finding.mend}", flush=True)
    print()
    if able(findings):
        print("Searches can run here: mtmc search task=softmax")
        return 0
    lacking = ", ".join(finding.what for finding in findings if finding.needed and not finding.ok)
    print(f"No search can run here before this is mended: {lacking}")
    return 1


def _no_arguments(parser: argparse.ArgumentParser) -> None:
    pass


DOCTOR = Command(
    run=_doctor,
    arguments=_no_arguments,
    summary="say what this machine can do, and why not",
    usage="",
    description="Look at the installation, compile a small kernel for each target, run it under the interpreter, try\n"
    "each protection of the sandbox, and list GPUs and model keys (their names only). The exit status is 0 if the\n"
    "embedded default can run, else 1.",
)
