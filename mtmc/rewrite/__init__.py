"""The rewriter: torch.export -> graph -> plan -> Triton source. Rules, not a model: deterministic and free.

graph.py     what was exported: ops, values and their sizes at several shapes
export.py    a reference through torch.export, without data (passing.py: ops that give what they are given)
effects.py   what a reference changes: its inputs, its module's buffers; what of that cannot be followed
exported.py  Task -> Graph (merger.py: of exports at several sets of shapes)
sizes.py     an exported number -> the Python expression that gives it at other shapes
guards.py    what a task's versions hold for: guard_derivation.py finds it (symbolic.py, guard_sizes.py,
             guard_origins.py), and guard_text.py writes it into a version (guard_functions.py, guard_conditions.py,
             guard_forms.py)
operators/   the table of ops: elementwise.py (ATen name -> expression, flops, domain), and what is several steps or no
             elementwise work: composites.py, norms.py, losses.py, products.py, windows.py, scans.py, attention.py (steps.py
             has what they share)
expansion.py the ops that one kernel covers as such steps, and builder.py makes its body of these
body.py      the parts of the ops that one kernel covers, in order (totals.py, repeated_rows.py, turned_rows.py: otherwise)
algebra/     other ops that give the same
space.py     where in memory an element of a kernel's iteration space lies, for any operand
plan.py      Plan: an ordered list of stages, each a torch call or a kernel of a template with its schedule
titles.py    what a kernel is called, by what it does
templates/    pointwise, rowwise, matmul, convolution, windows (pooling), scan, attention: what each may cover and how it
             prints; channels_last.py: of tensors whose channels are innermost, permuted_body.py: what they compute
             in that order; as_laid.py: results in the order in memory that the reference's have
lying.py     where values lie in memory, and what sees to it that they lie as kernels expect
read_lying.py kernels over rows that read convolutions' results as these lie, without a copy
symmetry.py  which values are symmetric matrices because of how they are made
copies.py    copies of values that convolutions are given: channels last, rounded to TF32, or both
made_rounded.py results that are rounded to TF32 where they are made, and so need no copy
source.py    Plan -> the text of a kernel version (forward.py: of its forward)
printing.py  a kernel stage of a plan as text
joins.py     what kernels write where it is joined (joined_forward.py: how forward says so)
write_back.py how a version leaves behind what the reference changes
cuda_graph.py the text of a forward that is replayed as one CUDA graph
packing.py   what a forward computes from weights alone, kept from one call to the next
direct_launch.py the text of launches that go straight to compiled kernels
"""
