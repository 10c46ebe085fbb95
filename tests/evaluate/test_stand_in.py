"""A build without a GPU: recurrent layers run on fake tensors, as a module and as the ATen calls of a version."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import torch
from mtmc.evaluate.compiling import stand_in
from mtmc.evaluate.loading.fake import FakeMode

device = stand_in.install()  # a CPU build of torch has no fake tensors on a GPU
with FakeMode(), torch.no_grad():
    for module, call, states in (
        (torch.nn.GRU(8, 16, 2), torch.ops.aten.gru.input, 1),
        (torch.nn.LSTM(8, 16, 2), torch.ops.aten.lstm.input, 2),
        (torch.nn.RNN(8, 16, 2), torch.ops.aten.rnn_tanh.input, 1),
    ):
        module = module.to(device)
        x, state = torch.zeros(5, 3, 8, device=device), [torch.zeros(2, 3, 16, device=device)] * states
        first, _ = module(x)
        result = call(x, state if states == 2 else state[0], list(module.parameters()), True, 2, 0.0, False, False, False)
        for output in (first, result[0]):
            assert output.shape == (5, 3, 16) and str(output.device) == device, (output.shape, output.device)
        assert len(result) == 1 + states
print("fine")
"""


QUICK = """
import time
import torch
from mtmc.evaluate.compiling import stand_in
from mtmc.evaluate.loading.fake import FakeMode
from torch.utils._python_dispatch import TorchDispatchMode

real, x = torch.nn.LSTM(8, 16, 2), torch.rand(5, 3, 8)
with torch.no_grad():
    wanted, _ = real(x)
stand_in.quicken()
import torch.nn.utils._expanded_weights  # looks recurrent ops up in tables

class Ops(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        seen.append(str(func))
        return func(*args, **(kwargs or {}))

seen = []
with FakeMode(), torch.no_grad():
    module = torch.nn.LSTM(8, 16, 2)
    states, steps = [torch.zeros(2, 3, 16)] * 2, torch.zeros(900, 3, 8)
    with Ops():
        first, _ = module(steps)
        result = torch.ops.aten.lstm.input(steps, states, list(module.parameters()), True, 2, 0.0, False, False, False)
    assert first.shape == result[0].shape == (900, 3, 16) and result[2].shape == (2, 3, 16)
assert len(seen) < 50 and not any("mm" in each or "linear" in each for each in seen), len(seen)
with torch.no_grad():
    assert torch.equal(real(x)[0], wanted), "numbers are computed as ever"
print("fine")
"""


def test_recurrent_layers_of_fake_tensors_have_no_steps() -> None:
    done = subprocess.run([sys.executable, "-c", QUICK], capture_output=True, text=True, check=False)
    assert done.stdout == "fine\n", done.stderr[-2000:]


def test_recurrent_layers_need_no_device() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert done.stdout == "fine\n", done.stderr[-2000:]
