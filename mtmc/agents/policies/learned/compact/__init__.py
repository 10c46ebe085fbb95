"""The compact policy: a small network over the features of a version and its actions.

    network.py    what it computes, in numpy; its file
    policy.py     the policy of a search (`policy=compact`)

`mtmc.rl.train.compact_scorer` is the same network in torch, to be trained.
weights.npz and model_card.md beside them are what a training wrote.
"""
