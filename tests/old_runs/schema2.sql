BEGIN TRANSACTION;
CREATE TABLE attempts (
    trial_id INTEGER NOT NULL, number INTEGER NOT NULL, hash TEXT, plan TEXT, cost TEXT NOT NULL, error TEXT,
    PRIMARY KEY (trial_id, number)) WITHOUT ROWID;
INSERT INTO "attempts" VALUES(-1,0,'6413d88077f6a14a','[{"family":"torch","ops":["softmax"],"schedule":{}}]','{"seconds": 2.4859968260000187, "usd": 0.0, "tokens_in": 0, "tokens_out": 0, "calls": 0}',NULL);
INSERT INTO "attempts" VALUES(0,0,'84b2fd55a8b35fc9','[{"family":"rowwise","ops":["softmax"],"schedule":{"block_cols":0,"block_rows":1,"num_warps":8,"passes":"registers","split":1}}]','{"seconds": 0.005426615000033053, "usd": 0.0, "tokens_in": 0, "tokens_out": 0, "calls": 0}',NULL);
INSERT INTO "attempts" VALUES(1,0,'a2b6dd8a0a8743a2','[{"family":"rowwise","ops":["softmax"],"schedule":{"block_cols":0,"block_rows":1,"num_warps":16,"passes":"registers","split":1}}]','{"seconds": 0.0012369769999622804, "usd": 0.0, "tokens_in": 0, "tokens_out": 0, "calls": 0}',NULL);
INSERT INTO "attempts" VALUES(2,0,'1657231362701bcf','[{"family":"rowwise","ops":["softmax"],"schedule":{"block_cols":0,"block_rows":1,"cache":"let go","num_warps":16,"passes":"registers","split":1}}]','{"seconds": 0.0012299180000354681, "usd": 0.0, "tokens_in": 0, "tokens_out": 0, "calls": 0}',NULL);
INSERT INTO "attempts" VALUES(3,0,'a2b6dd8a0a8743a2','[{"family":"rowwise","ops":["softmax"],"schedule":{"block_cols":0,"block_rows":1,"cache":"keep","num_warps":16,"passes":"registers","split":1}}]','{"seconds": 0.0012509370001225761, "usd": 0.0, "tokens_in": 0, "tokens_out": 0, "calls": 0}',NULL);
INSERT INTO "attempts" VALUES(4,0,'3e37f56697e8a674','[{"family":"rowwise","ops":["softmax"],"schedule":{"block_cols":0,"block_rows":1,"num_warps":32,"passes":"registers","split":1}}]','{"seconds": 0.0014421689998016518, "usd": 0.0, "tokens_in": 0, "tokens_out": 0, "calls": 0}',NULL);
INSERT INTO "attempts" VALUES(5,0,'68613c97f5f3b8e4','[{"family":"rowwise","ops":["softmax"],"schedule":{"block_cols":0,"block_rows":1,"num_warps":4,"passes":"registers","split":1}}]','{"seconds": 0.0012026849999529077, "usd": 0.0, "tokens_in": 0, "tokens_out": 0, "calls": 0}',NULL);
CREATE TABLE batches (id INTEGER PRIMARY KEY, asked INTEGER NOT NULL, seconds REAL);
INSERT INTO "batches" VALUES(0,1,0.902113245999999);
INSERT INTO "batches" VALUES(1,1,9.11137646000042877858e-01);
INSERT INTO "batches" VALUES(2,1,9.20871716999954514903e-01);
INSERT INTO "batches" VALUES(3,1,9.24301808000109303975e-01);
INSERT INTO "batches" VALUES(4,1,9.32214082999962556641e-01);
INSERT INTO "batches" VALUES(5,1,NULL);
CREATE TABLE events (id INTEGER PRIMARY KEY, seconds REAL NOT NULL, kind TEXT NOT NULL, data TEXT NOT NULL);
INSERT INTO "events" VALUES(1,0.0,'start','{"schema": 2, "versions": {"langgraph": "1.2.22", "mtmc": "0.1.0", "python": "3.11.7", "torch": "2.13.0+cpu", "triton": "3.9.0"}}');
CREATE TABLE meta (key TEXT PRIMARY KEY, value BLOB) WITHOUT ROWID;
INSERT INTO "meta" VALUES('baselines','{"fake compiler": {"status": "ok", "runtime_ms": 4.0, "runtime_low_ms": null, "runtime_high_ms": null, "trials": 0, "runtime_kind": "estimated", "metrics": {}, "diagnosis": null}}');
INSERT INTO "meta" VALUES('hardware','H100');
INSERT INTO "meta" VALUES('schema',2);
INSERT INTO "meta" VALUES('settings','{"task": "softmax", "strategy": {"name": "best_of_n", "settings": {"rollouts": null, "steps": 64, "patience": 200}}, "policy": {"name": "uniform", "settings": {}}, "coder": {"name": "rewriter", "settings": {}}, "evaluator": {"object": "mtmc.fakes.FakeEvaluator", "settings": {"failing": 0.0, "gain": 0.5, "rejecting": 0.0, "log": null, "seconds": 0.0, "hardware": "H100", "root_ms": 8.0}}, "deterministic": true, "hardware": "H100", "budget": {"evaluations": 9, "wall_seconds": null, "depth": 8, "roofline": null, "usd": null, "tokens": null, "calls": null, "model_seconds": null}, "seed": 4, "batch": 1, "repairs": 2, "model": {"name": "", "api_base": "", "temperature": 0.7, "max_tokens": 8192, "timeout_s": 120.0, "retries": 4, "replay": ""}, "versions": {"python": "3.11.7", "mtmc": "0.1.0", "torch": "2.13.0+cpu", "triton": "3.9.0", "langgraph": "1.2.22"}}');
INSERT INTO "meta" VALUES('state',NULL);
INSERT INTO "meta" VALUES('task','{"name": "softmax", "source": "\"\"\"Softmax over each row.\"\"\"\n\nimport torch\nfrom torch import nn\n\nrows = 16384\ncols = 4096\n\nVARIANTS = {\n    \"small\": {\"rows\": 24, \"cols\": 320},\n    \"odd1\": {\"rows\": 7, \"cols\": 33},\n    \"odd2\": {\"rows\": 13, \"cols\": 129},\n    \"odd3\": {\"rows\": 31, \"cols\": 517},\n}\n\n\nclass Model(nn.Module):\n    def forward(self, x):\n        return torch.softmax(x, dim=-1)\n\n\ndef get_inputs():\n    return [4 * torch.randn(rows, cols)]\n\n\ndef get_init_inputs():\n    return []\n", "full": {"label": "full", "constants": [], "inputs": "get_inputs", "init_inputs": "get_init_inputs"}, "small": {"label": "small", "constants": [["rows", 24], ["cols", 320]], "inputs": "get_inputs", "init_inputs": "get_init_inputs"}, "held_out": [{"label": "odd1", "constants": [["rows", 7], ["cols", 33]], "inputs": "get_inputs", "init_inputs": "get_init_inputs"}, {"label": "odd2", "constants": [["rows", 13], ["cols", 129]], "inputs": "get_inputs", "init_inputs": "get_init_inputs"}, {"label": "odd3", "constants": [["rows", 31], ["cols", 517]], "inputs": "get_inputs", "init_inputs": "get_init_inputs"}]}');
CREATE TABLE model_calls (
    id INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, trial_id INTEGER NOT NULL, node_id INTEGER NOT NULL,
    model TEXT NOT NULL, purpose TEXT NOT NULL, seed INTEGER NOT NULL, messages TEXT NOT NULL, reply TEXT,
    tokens_in INTEGER, tokens_out INTEGER, usd REAL, seconds REAL, truncated INTEGER, tries INTEGER,
    error TEXT NOT NULL, spent INTEGER NOT NULL, verdict TEXT NOT NULL, replayed INTEGER NOT NULL);
CREATE TABLE nodes (
    id INTEGER PRIMARY KEY, parent_id INTEGER NOT NULL, trial_id INTEGER NOT NULL, attempt INTEGER NOT NULL,
    hash TEXT NOT NULL, gate TEXT NOT NULL, actions TEXT NOT NULL, priors TEXT NOT NULL);
INSERT INTO "nodes" VALUES(0,-1,-1,0,'6413d88077f6a14a','screen','[{"kind": "lower", "region": {"name": "softmax", "first_line": 13, "last_line": 13}, "params": {}, "sentence": "lower softmax to a Triton kernel, line 13"}, {"kind": "stop", "region": {"name": "module", "first_line": 1, "last_line": 1}, "params": {}, "sentence": "stop: keep this version as it is"}]','[0.5, 0.5]');
INSERT INTO "nodes" VALUES(1,0,0,0,'84b2fd55a8b35fc9','screen','[{"kind": "tile", "region": {"name": "softmax", "first_line": 9, "last_line": 50}, "params": {"block_rows": 2}, "sentence": "retile the softmax kernel to 2 rows a program, lines 9-50"}, {"kind": "reorder", "region": {"name": "softmax", "first_line": 9, "last_line": 50}, "params": {"block_cols": 1024, "num_warps": 8, "passes": "loop"}, "sentence": "walk over each row of the softmax kernel in passes, lines 9-50"}, {"kind": "reorder", "region": {"name": "softmax", "first_line": 9, "last_line": 50}, "params": {"cache": "let go"}, "sentence": "let the cache forget what the softmax kernel has read, lines 9-50"}, {"kind": "vectorize", "region": {"name": "softmax", "first_line": 9, "last_line": 50}, "params": {"num_warps": 2}, "sentence": "vectorize the softmax kernel: 2 warps a program, lines 9-50"}, {"kind": "vectorize", "region": {"name": "softmax", "first_line": 9, "last_line": 50}, "params": {"num_warps": 4}, "sentence": "vectorize the softmax kernel: 4 warps a program, lines 9-50"}, {"kind": "vectorize", "region": {"name": "softmax", "first_line": 9, "last_line": 50}, "params": {"num_warps": 16}, "sentence": "vectorize the softmax kernel: 16 warps a program, lines 9-50"}, {"kind": "vectorize", "region": {"name": "softmax", "first_line": 9, "last_line": 50}, "params": {"num_warps": 32}, "sentence": "vectorize the softmax kernel: 32 warps a program, lines 9-50"}, {"kind": "stop", "region": {"name": "module", "first_line": 1, "last_line": 1}, "params": {}, "sentence": "stop: keep this version as it is"}]','[0.125, 0.125, 0.125, 0.125, 0.125, 0.125, 0.125, 0.125]');
INSERT INTO "nodes" VALUES(2,1,1,0,'a2b6dd8a0a8743a2','screen','[{"kind": "tile", "region": {"name": "softmax", "first_line": 9, "last_line": 50}, "params": {"block_rows": 2}, "sentence": "retile the softmax kernel to 2 rows a program, lines 9-50"}, {"kind": "reorder", "region": {"name": "softmax", "first_line": 9, "last_line": 50}, "params": {"block_cols": 1024, "num_warps": 8, "passes": "loop"}, "sentence": "walk over each row of the softmax kernel in passes, lines 9-50"}, {"kind": "reorder", "region": {"name": "softmax", "first_line": 9, "last_line": 50}, "params": {"cache": "let go"}, "sentence": "let the cache forget what the softmax kernel has read, lines 9-50"}, {"kind": "vectorize", "region": {"name": "softmax", "first_line": 9, "last_line": 50}, "params": {"num_warps": 2}, "sentence": "vectorize the softmax kernel: 2 warps a program, lines 9-50"}, {"kind": "vectorize", "region": {"name": "softmax", "first_line": 9, "last_line": 50}, "params": {"num_warps": 4}, "sentence": "vectorize the softmax kernel: 4 warps a program, lines 9-50"}, {"kind": "vectorize", "region": {"name": "softmax", "first_line": 9, "last_line": 50}, "params": {"num_warps": 8}, "sentence": "vectorize the softmax kernel: 8 warps a program, lines 9-50"}, {"kind": "vectorize", "region": {"name": "softmax", "first_line": 9, "last_line": 50}, "params": {"num_warps": 32}, "sentence": "vectorize the softmax kernel: 32 warps a program, lines 9-50"}, {"kind": "stop", "region": {"name": "module", "first_line": 1, "last_line": 1}, "params": {}, "sentence": "stop: keep this version as it is"}]','[0.125, 0.125, 0.125, 0.125, 0.125, 0.125, 0.125, 0.125]');
INSERT INTO "nodes" VALUES(3,2,2,0,'1657231362701bcf','screen','[{"kind": "tile", "region": {"name": "softmax", "first_line": 9, "last_line": 55}, "params": {"block_rows": 2}, "sentence": "retile the softmax kernel to 2 rows a program, lines 9-55"}, {"kind": "reorder", "region": {"name": "softmax", "first_line": 9, "last_line": 55}, "params": {"block_cols": 1024, "num_warps": 8, "passes": "loop"}, "sentence": "walk over each row of the softmax kernel in passes, lines 9-55"}, {"kind": "reorder", "region": {"name": "softmax", "first_line": 9, "last_line": 55}, "params": {"cache": "keep"}, "sentence": "treat what the softmax kernel has read like all else, lines 9-55"}, {"kind": "vectorize", "region": {"name": "softmax", "first_line": 9, "last_line": 55}, "params": {"num_warps": 2}, "sentence": "vectorize the softmax kernel: 2 warps a program, lines 9-55"}, {"kind": "vectorize", "region": {"name": "softmax", "first_line": 9, "last_line": 55}, "params": {"num_warps": 4}, "sentence": "vectorize the softmax kernel: 4 warps a program, lines 9-55"}, {"kind": "vectorize", "region": {"name": "softmax", "first_line": 9, "last_line": 55}, "params": {"num_warps": 8}, "sentence": "vectorize the softmax kernel: 8 warps a program, lines 9-55"}, {"kind": "vectorize", "region": {"name": "softmax", "first_line": 9, "last_line": 55}, "params": {"num_warps": 32}, "sentence": "vectorize the softmax kernel: 32 warps a program, lines 9-55"}, {"kind": "stop", "region": {"name": "module", "first_line": 1, "last_line": 1}, "params": {}, "sentence": "stop: keep this version as it is"}]','[0.125, 0.125, 0.125, 0.125, 0.125, 0.125, 0.125, 0.125]');
INSERT INTO "nodes" VALUES(4,2,4,0,'3e37f56697e8a674','screen','[{"kind": "tile", "region": {"name": "softmax", "first_line": 9, "last_line": 50}, "params": {"block_rows": 2}, "sentence": "retile the softmax kernel to 2 rows a program, lines 9-50"}, {"kind": "reorder", "region": {"name": "softmax", "first_line": 9, "last_line": 50}, "params": {"block_cols": 1024, "num_warps": 8, "passes": "loop"}, "sentence": "walk over each row of the softmax kernel in passes, lines 9-50"}, {"kind": "reorder", "region": {"name": "softmax", "first_line": 9, "last_line": 50}, "params": {"cache": "let go"}, "sentence": "let the cache forget what the softmax kernel has read, lines 9-50"}, {"kind": "vectorize", "region": {"name": "softmax", "first_line": 9, "last_line": 50}, "params": {"num_warps": 2}, "sentence": "vectorize the softmax kernel: 2 warps a program, lines 9-50"}, {"kind": "vectorize", "region": {"name": "softmax", "first_line": 9, "last_line": 50}, "params": {"num_warps": 4}, "sentence": "vectorize the softmax kernel: 4 warps a program, lines 9-50"}, {"kind": "vectorize", "region": {"name": "softmax", "first_line": 9, "last_line": 50}, "params": {"num_warps": 8}, "sentence": "vectorize the softmax kernel: 8 warps a program, lines 9-50"}, {"kind": "vectorize", "region": {"name": "softmax", "first_line": 9, "last_line": 50}, "params": {"num_warps": 16}, "sentence": "vectorize the softmax kernel: 16 warps a program, lines 9-50"}, {"kind": "stop", "region": {"name": "module", "first_line": 1, "last_line": 1}, "params": {}, "sentence": "stop: keep this version as it is"}]','[0.125, 0.125, 0.125, 0.125, 0.125, 0.125, 0.125, 0.125]');
CREATE TABLE outcomes (
    hash TEXT NOT NULL, gate TEXT NOT NULL, batch INTEGER NOT NULL, seconds REAL NOT NULL, outcome TEXT NOT NULL,
    PRIMARY KEY (hash, gate)) WITHOUT ROWID;
INSERT INTO "outcomes" VALUES('1657231362701bcf','screen',2,3.93769998936477350071e-05,'{"status": "ok", "runtime_ms": 8.0, "runtime_low_ms": null, "runtime_high_ms": null, "trials": 0, "runtime_kind": "estimated", "metrics": {"kernels": 1.0, "roofline": 0.1}, "diagnosis": null}');
INSERT INTO "outcomes" VALUES('3e37f56697e8a674','screen',4,3.87090001368051161989e-05,'{"status": "ok", "runtime_ms": 8.0, "runtime_low_ms": null, "runtime_high_ms": null, "trials": 0, "runtime_kind": "estimated", "metrics": {"kernels": 1.0, "roofline": 0.1}, "diagnosis": null}');
INSERT INTO "outcomes" VALUES('6413d88077f6a14a','screen',-1,3.47449999935634e-05,'{"status": "ok", "runtime_ms": 8.0, "runtime_low_ms": null, "runtime_high_ms": null, "trials": 0, "runtime_kind": "estimated", "metrics": {"kernels": 1.0, "roofline": 0.1}, "diagnosis": null}');
INSERT INTO "outcomes" VALUES('84b2fd55a8b35fc9','screen',0,4.0672999830349e-05,'{"status": "ok", "runtime_ms": 8.0, "runtime_low_ms": null, "runtime_high_ms": null, "trials": 0, "runtime_kind": "estimated", "metrics": {"kernels": 1.0, "roofline": 0.1}, "diagnosis": null}');
INSERT INTO "outcomes" VALUES('a2b6dd8a0a8743a2','screen',1,3.25319999774365e-05,'{"status": "ok", "runtime_ms": 8.0, "runtime_low_ms": null, "runtime_high_ms": null, "trials": 0, "runtime_kind": "estimated", "metrics": {"kernels": 1.0, "roofline": 0.1}, "diagnosis": null}');
CREATE TABLE sources (hash TEXT PRIMARY KEY, source TEXT NOT NULL) WITHOUT ROWID;
INSERT INTO "sources" VALUES('1657231362701bcf','"""softmax: a kernel version made by mtmc. Needs only torch and triton; right for any shape."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def softmax_kernel(
    x_ptr,
    softmax_ptr,
    n_rows,
    n_cols,
    WIDE: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLS: tl.constexpr,
):
    """softmax: BLOCK_ROWS rows a program, each row held in registers."""
    rows = (tl.program_id(0) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS))[:, None]
    if WIDE:  # more elements than a 32-bit offset can reach
        rows = rows.to(tl.int64)
    row_mask = rows < n_rows
    cols = tl.arange(0, BLOCK_COLS)[None, :]
    col_mask = cols < n_cols
    mask = row_mask & col_mask
    x = tl.load(
        x_ptr + rows * n_cols + cols,
        mask=row_mask & col_mask,
        other=0.0,
        eviction_policy="evict_first",
    ).to(tl.float32)
    softmax_max = tl.max(tl.where(mask, x, float("-inf")), axis=1, keep_dims=True)
    softmax_shifted = x - softmax_max
    softmax_exp = tl.exp(softmax_shifted)
    softmax_sum = tl.sum(tl.where(mask, softmax_exp, 0.0), axis=1, keep_dims=True)
    softmax = softmax_exp / softmax_sum
    tl.store(softmax_ptr + rows * n_cols + cols, softmax, mask=mask)


def launch_softmax(x):
    """Launch softmax_kernel."""
    x = x.contiguous()
    softmax = torch.empty_like(x)
    softmax_kernel[(x.shape[0],)](
        x,
        softmax,
        x.shape[0],
        x.shape[1],
        WIDE=x.shape[0] * x.shape[1] >= 2**31,
        BLOCK_ROWS=1,
        BLOCK_COLS=triton.next_power_of_2(x.shape[1]),
        num_warps=16,
    )
    return softmax


class ModelNew(nn.Module):
    def forward(self, x):
        softmax = launch_softmax(x)
        return softmax
');
INSERT INTO "sources" VALUES('3e37f56697e8a674','"""softmax: a kernel version made by mtmc. Needs only torch and triton; right for any shape."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def softmax_kernel(
    x_ptr,
    softmax_ptr,
    n_rows,
    n_cols,
    WIDE: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLS: tl.constexpr,
):
    """softmax: BLOCK_ROWS rows a program, each row held in registers."""
    rows = (tl.program_id(0) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS))[:, None]
    if WIDE:  # more elements than a 32-bit offset can reach
        rows = rows.to(tl.int64)
    row_mask = rows < n_rows
    cols = tl.arange(0, BLOCK_COLS)[None, :]
    col_mask = cols < n_cols
    mask = row_mask & col_mask
    x = tl.load(x_ptr + rows * n_cols + cols, mask=row_mask & col_mask, other=0.0).to(tl.float32)
    softmax_max = tl.max(tl.where(mask, x, float("-inf")), axis=1, keep_dims=True)
    softmax_shifted = x - softmax_max
    softmax_exp = tl.exp(softmax_shifted)
    softmax_sum = tl.sum(tl.where(mask, softmax_exp, 0.0), axis=1, keep_dims=True)
    softmax = softmax_exp / softmax_sum
    tl.store(softmax_ptr + rows * n_cols + cols, softmax, mask=mask)


def launch_softmax(x):
    """Launch softmax_kernel."""
    x = x.contiguous()
    softmax = torch.empty_like(x)
    softmax_kernel[(x.shape[0],)](
        x,
        softmax,
        x.shape[0],
        x.shape[1],
        WIDE=x.shape[0] * x.shape[1] >= 2**31,
        BLOCK_ROWS=1,
        BLOCK_COLS=triton.next_power_of_2(x.shape[1]),
        num_warps=32,
    )
    return softmax


class ModelNew(nn.Module):
    def forward(self, x):
        softmax = launch_softmax(x)
        return softmax
');
INSERT INTO "sources" VALUES('6413d88077f6a14a','"""Softmax over each row."""

import torch
from torch import nn

rows = 16384
cols = 4096



class ModelNew(nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=-1)
');
INSERT INTO "sources" VALUES('68613c97f5f3b8e4','"""softmax: a kernel version made by mtmc. Needs only torch and triton; right for any shape."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def softmax_kernel(
    x_ptr,
    softmax_ptr,
    n_rows,
    n_cols,
    WIDE: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLS: tl.constexpr,
):
    """softmax: BLOCK_ROWS rows a program, each row held in registers."""
    rows = (tl.program_id(0) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS))[:, None]
    if WIDE:  # more elements than a 32-bit offset can reach
        rows = rows.to(tl.int64)
    row_mask = rows < n_rows
    cols = tl.arange(0, BLOCK_COLS)[None, :]
    col_mask = cols < n_cols
    mask = row_mask & col_mask
    x = tl.load(x_ptr + rows * n_cols + cols, mask=row_mask & col_mask, other=0.0).to(tl.float32)
    softmax_max = tl.max(tl.where(mask, x, float("-inf")), axis=1, keep_dims=True)
    softmax_shifted = x - softmax_max
    softmax_exp = tl.exp(softmax_shifted)
    softmax_sum = tl.sum(tl.where(mask, softmax_exp, 0.0), axis=1, keep_dims=True)
    softmax = softmax_exp / softmax_sum
    tl.store(softmax_ptr + rows * n_cols + cols, softmax, mask=mask)


def launch_softmax(x):
    """Launch softmax_kernel."""
    x = x.contiguous()
    softmax = torch.empty_like(x)
    softmax_kernel[(x.shape[0],)](
        x,
        softmax,
        x.shape[0],
        x.shape[1],
        WIDE=x.shape[0] * x.shape[1] >= 2**31,
        BLOCK_ROWS=1,
        BLOCK_COLS=triton.next_power_of_2(x.shape[1]),
        num_warps=4,
    )
    return softmax


class ModelNew(nn.Module):
    def forward(self, x):
        softmax = launch_softmax(x)
        return softmax
');
INSERT INTO "sources" VALUES('84b2fd55a8b35fc9','"""softmax: a kernel version made by mtmc. Needs only torch and triton; right for any shape."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def softmax_kernel(
    x_ptr,
    softmax_ptr,
    n_rows,
    n_cols,
    WIDE: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLS: tl.constexpr,
):
    """softmax: BLOCK_ROWS rows a program, each row held in registers."""
    rows = (tl.program_id(0) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS))[:, None]
    if WIDE:  # more elements than a 32-bit offset can reach
        rows = rows.to(tl.int64)
    row_mask = rows < n_rows
    cols = tl.arange(0, BLOCK_COLS)[None, :]
    col_mask = cols < n_cols
    mask = row_mask & col_mask
    x = tl.load(x_ptr + rows * n_cols + cols, mask=row_mask & col_mask, other=0.0).to(tl.float32)
    softmax_max = tl.max(tl.where(mask, x, float("-inf")), axis=1, keep_dims=True)
    softmax_shifted = x - softmax_max
    softmax_exp = tl.exp(softmax_shifted)
    softmax_sum = tl.sum(tl.where(mask, softmax_exp, 0.0), axis=1, keep_dims=True)
    softmax = softmax_exp / softmax_sum
    tl.store(softmax_ptr + rows * n_cols + cols, softmax, mask=mask)


def launch_softmax(x):
    """Launch softmax_kernel."""
    x = x.contiguous()
    softmax = torch.empty_like(x)
    softmax_kernel[(x.shape[0],)](
        x,
        softmax,
        x.shape[0],
        x.shape[1],
        WIDE=x.shape[0] * x.shape[1] >= 2**31,
        BLOCK_ROWS=1,
        BLOCK_COLS=triton.next_power_of_2(x.shape[1]),
        num_warps=8,
    )
    return softmax


class ModelNew(nn.Module):
    def forward(self, x):
        softmax = launch_softmax(x)
        return softmax
');
INSERT INTO "sources" VALUES('a2b6dd8a0a8743a2','"""softmax: a kernel version made by mtmc. Needs only torch and triton; right for any shape."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def softmax_kernel(
    x_ptr,
    softmax_ptr,
    n_rows,
    n_cols,
    WIDE: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLS: tl.constexpr,
):
    """softmax: BLOCK_ROWS rows a program, each row held in registers."""
    rows = (tl.program_id(0) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS))[:, None]
    if WIDE:  # more elements than a 32-bit offset can reach
        rows = rows.to(tl.int64)
    row_mask = rows < n_rows
    cols = tl.arange(0, BLOCK_COLS)[None, :]
    col_mask = cols < n_cols
    mask = row_mask & col_mask
    x = tl.load(x_ptr + rows * n_cols + cols, mask=row_mask & col_mask, other=0.0).to(tl.float32)
    softmax_max = tl.max(tl.where(mask, x, float("-inf")), axis=1, keep_dims=True)
    softmax_shifted = x - softmax_max
    softmax_exp = tl.exp(softmax_shifted)
    softmax_sum = tl.sum(tl.where(mask, softmax_exp, 0.0), axis=1, keep_dims=True)
    softmax = softmax_exp / softmax_sum
    tl.store(softmax_ptr + rows * n_cols + cols, softmax, mask=mask)


def launch_softmax(x):
    """Launch softmax_kernel."""
    x = x.contiguous()
    softmax = torch.empty_like(x)
    softmax_kernel[(x.shape[0],)](
        x,
        softmax,
        x.shape[0],
        x.shape[1],
        WIDE=x.shape[0] * x.shape[1] >= 2**31,
        BLOCK_ROWS=1,
        BLOCK_COLS=triton.next_power_of_2(x.shape[1]),
        num_warps=16,
    )
    return softmax


class ModelNew(nn.Module):
    def forward(self, x):
        softmax = launch_softmax(x)
        return softmax
');
CREATE TABLE trials (
    id INTEGER PRIMARY KEY, batch INTEGER NOT NULL, node_id INTEGER NOT NULL, action_index INTEGER NOT NULL,
    allowance INTEGER NOT NULL, kind TEXT, child_id INTEGER, evaluations INTEGER, reason TEXT);
INSERT INTO "trials" VALUES(0,0,0,0,3,'node',1,1,'');
INSERT INTO "trials" VALUES(1,1,1,5,3,'node',2,1,'');
INSERT INTO "trials" VALUES(2,2,2,2,3,'node',3,1,'');
INSERT INTO "trials" VALUES(3,3,3,2,3,'duplicate',2,0,'its source is that of node 2');
INSERT INTO "trials" VALUES(4,4,2,6,3,'node',4,1,'');
INSERT INTO "trials" VALUES(5,5,4,4,3,NULL,NULL,NULL,NULL);
CREATE INDEX trials_of_batch ON trials (batch);
CREATE VIEW edits AS
    SELECT trial_id, number, hash, source, plan, cost, error FROM attempts LEFT JOIN sources USING (hash);
CREATE TRIGGER edit INSTEAD OF INSERT ON edits BEGIN
    INSERT OR IGNORE INTO sources SELECT NEW.hash, NEW.source WHERE NEW.hash IS NOT NULL;
    INSERT OR IGNORE INTO attempts VALUES (NEW.trial_id, NEW.number, NEW.hash, NEW.plan, NEW.cost, NEW.error);
END;
COMMIT;
