"""direct_launch: the text of launches that go straight to a compiled kernel.

Triton finds out at each launch for which kinds of arguments a kernel has to be compiled, which takes the host one to five
microseconds (results/launch_cost.md). A kernel is wrapped so that a launch with arguments of a kind that it has seen goes
to what was compiled for it, by Triton's own `compiled[grid](*arguments)`.
"""

from __future__ import annotations

import re

CLASS = "DirectLaunches"
HELPER = f'''\
class {CLASS}:
    """Launches of one kernel. Triton compiles for types, for addresses that are multiples of 16 or not, and for some
    numbers; a launch whose arguments are alike in these goes straight to what was compiled for an earlier one."""

    MOST = 256  # kinds of arguments that are remembered

    def __init__(self, kernel):
        self.kernel, self.known = kernel, {{}}

    def __getitem__(self, grid):
        def launch(*given, **options):
            device = getattr(given[0], "base", given[0]).get_device()
            key = (device, *map(self.kind, given), *options.values())
            found = self.known.get(key)
            if found is not None:
                compiled, constants = found
                return compiled[(*grid, 1, 1)[:3]](*given, *constants)
            compiled = self.kernel[grid](*given, **options)
            if getattr(compiled, "module", None) is not None:  # it is loaded: there is a GPU
                if len(self.known) == self.MOST:
                    self.known.clear()
                self.known[key] = compiled, [options[name] for name in self.kernel.arg_names[len(given) :]]
            return compiled

        return launch

    @staticmethod
    def kind(x):
        if isinstance(x, torch.Tensor):
            return x.dtype, x.data_ptr() % 16
        return (x.base.dtype, *x.block_shape) if hasattr(x, "block_shape") else x  # a tensor descriptor, or a number
'''
_KERNEL = re.compile(r"^@triton\.jit\ndef (\w+)\(", re.MULTILINE)
_LAUNCHER = re.compile(r"^def launch_\w+\(", re.MULTILINE)


def launched_directly(text: str) -> str:
    """A stage's kernels and launcher, with launches that go to wrapped kernels. The text as it is where none is launched."""
    wrapped = []
    for name in _KERNEL.findall(text):
        text, count = re.subn(rf"^( +){name}\[\(", rf"\1{name}_directly[(", text, flags=re.MULTILINE)
        wrapped += [f"{name}_directly = {CLASS}({name})"] if count else []
    launcher = _LAUNCHER.search(text)
    if not wrapped or launcher is None:
        return text
    lines = "\n".join(wrapped)
    return f"{text[: launcher.start()]}{lines}\n\n\n{text[launcher.start() :]}"
