"""operators: how an ATen operator becomes nodes of a kernel. `table.table` finds it in the parts below.

elementwise.py  arithmetic.py  division.py  powers.py  inverses.py    element by element; in dtypes; without libdevice
reductions.py  composites.py  norms.py  native.py  losses.py  scans.py    rows: sums, softmaxes, norms, losses
products.py  einsums.py  attention.py  windows.py    products of matrices, pools and convolutions
indexing.py  lookups.py  makers.py    what only moves elements; elements at given indices; tensors made of numbers
decomposed.py  decomposition.py    what is in no table, as torch decomposes it
typed.py  steps.py    what expansions have in common
"""
