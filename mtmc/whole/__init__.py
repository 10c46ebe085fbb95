"""A whole network: kernels for the submodules that take its time, kept only where the whole gets faster.

site.py, calls.py    the tree of calls of a model, and where its time goes
signature.py         what a call is apart from the values of its tensors
trace.py, timing.py  the same without a GPU, estimated, and on one, measured
pieces.py            which submodules get a search: equal ones are one piece
allocate.py          how the budget goes to the pieces
patch.py             a copy of a model with other submodules in some places
settle.py            which patches stay, and which model is handed back
"""
