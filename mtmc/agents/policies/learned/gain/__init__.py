"""Predicted gain: what an action is expected to gain at a version, log2 of the parent's over the child's runtime.

    facts.py      what bounds the version, how far its roofs are, what an action may pay at most: as features
    boosted.py    what the model computes: the mean of boosted trees, in numpy; its file
    model.py      from a version and its legal actions to gains and their spread

`mtmc.rl.gain` trains it (`mtmc train gain=boosted`). weights.npz and model_card.md beside them are what a training wrote.
"""
