"""The model of gains, trained on recorded trees (`mtmc train gain=boosted`).

    settings.py   how it is trained
    data.py       from recorded trees to rows of features with the gain of each
    fit.py        boosted trees, grown in numpy
    crossed.py    cross-validation by task, and its figures
    train.py      a whole training, and its card

`mtmc.agents.policies.learned.gain` is what a search needs of it.
"""
