"""The sixteen launches are one CUDA graph: captured at the first call with inputs of a form, replayed at every other one.

The input is copied to where the graph reads it, the result from where the graph writes it: a result must stay what it is
when the next call comes. The graph reads weights where they lie; another tensor in the place of one means another graph.
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, width, layers):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(width, width) for _ in range(layers)])
        self.graphs, self.held = {}, ()

    def launches(self, x):
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return x

    def capture(self, x):
        own = x.clone()
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            self.launches(own)  # kernels are loaded and handles made before the capture
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        torch._C._cuda_clearCublasWorkspaces()  # so that this graph has its own, which lives as long as it does
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            result = self.launches(own)
        torch._C._cuda_clearCublasWorkspaces()
        return graph, own, result

    def forward(self, x):
        if not x.is_cuda or torch.is_grad_enabled() or torch.cuda.is_current_stream_capturing():
            return self.launches(x)
        held = tuple((w.data_ptr(), w.shape, w.stride(), w.dtype) for w in self.parameters())
        if held != self.held:
            self.graphs, self.held = {}, held
        form = (torch.cuda.current_stream().cuda_stream, x.shape, x.stride(), x.dtype, x.device)
        if form not in self.graphs:
            self.graphs[form] = self.capture(x)
        graph, own, result = self.graphs[form]
        own.copy_(x)
        graph.replay()
        return result.clone()
