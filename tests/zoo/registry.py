"""The modules of the zoo by name. Those of a library are made only where it can be imported."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import torch

from tests.zoo.example import Builder, Example

LIBRARIES = {
    "torch": "tests.zoo.of_torch",
    "transformers": "tests.zoo.of_transformers",
    "timm": "tests.zoo.of_timm",
    "diffusers": "tests.zoo.of_diffusers",
    "torchvision": "tests.zoo.of_torchvision",
}
"""Library -> the module whose BUILDERS make its examples."""
SEED = 0


@dataclass(frozen=True)
class Entry:
    """One module of the zoo. library: where its class comes from."""

    name: str
    library: str
    build: Builder

    def example(self, dtype: torch.dtype = torch.float32) -> Example:
        """The module with random weights, the same at every call, and its example arguments."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(SEED)
            made = self.build()
            for parameter in made.module.parameters():  # Some start as zeros, or with what was in memory.
                if parameter.is_floating_point() and (not parameter.isfinite().all() or not parameter.any()):
                    torch.nn.init.normal_(parameter, std=0.02)
        return made.to(dtype)


@cache
def entries(library: str) -> Mapping[str, Entry]:
    """The modules of one library by name. Raises: ImportError where the library, or one that it needs, is missing."""
    declare_missing_operators()
    importlib.import_module(library)
    builders = importlib.import_module(LIBRARIES[library]).BUILDERS
    return {name: Entry(name, library, build) for name, build in builders.items()}


@cache
def declare_missing_operators() -> None:
    """Let torchvision be imported beside a torch that its compiled part was not made for (one without CUDA, say).

    Its import registers shapes for two operators of that part, and fails where they are not declared. Nothing in the
    zoo calls them; one that did would be told by torchvision that they are missing.
    """
    if importlib.util.find_spec("torchvision") is None:
        return
    try:
        importlib.import_module("torchvision.extension")
    except RuntimeError as error:
        if "torchvision::nms does not exist" not in str(error):
            raise
        for name in ("nms", "qnms"):
            torch.library.define(f"torchvision::{name}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
