"""Recorded trees and what is learned from them.

    generator/        training tasks, composed at random: (seed, index) -> text
    benchmark.py      the graphs of a benchmark, so that no training task is one of them
    expand.py         the strategy that grows trees to learn from
    bounds.py         what a number among the settings may be
    settings.py  collect.py  worker.py      many trees at once, resumable (`mtmc collect`)
    transpositions.py actions that were not tried but lead to a known version
    schema.py         the format of recorded trees, documented column by column
    record.py  dataset.py                   a run -> rows -> Parquet files, and back
    upgrade.py        files of an older version of the format, in today's words
    trees.py          recorded trees in memory, as a policy sees them live
    rewards.py        the reward of a step
    forest.py         many recorded trees as one set of arrays, and batches of their versions
    environment.py    episodes in them: any number at once, or one as a Gymnasium environment
    replays.py        a search on a recorded tree: how many evaluations it takes
    edits.py  formats.py                    runs and trees as examples for others' trainers
    scorer.py         what the training asks of a policy's network
    train/            PPO and GRPO over forests, and supervised pretraining (`mtmc train`)
    coder/            a language model that is trained to make edits

Importing this loads neither torch nor pyarrow; pyarrow and gymnasium are the extra `rl`.
"""
