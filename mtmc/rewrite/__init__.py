"""The rewriter: capture (torch.export) -> graph -> plan -> Triton source. Rules, not a model: deterministic and free.

graph.py     what was captured: ops, values and their sizes at several shapes
capture.py   Task -> Graph
sizes.py     a captured number -> the Python expression that gives it at any shape
ops.py       the table of ops: ATen name -> expression, flops, domain; composite ops -> their parts
body.py      the parts of the ops that one kernel covers, in order
space.py     where in memory an element of a kernel's iteration space lies, for any operand
plan.py      Plan: an ordered list of stages, each a torch call or a kernel of a family with its schedule
families/    pointwise, rowwise, matmul: what each may cover and how it prints
source.py    Plan -> the text of a kernel version
"""
