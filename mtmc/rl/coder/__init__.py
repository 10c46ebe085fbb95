"""A language model is trained to make edits, after AutoTriton (arXiv 2507.05687): `mtmc train coder=NAME`.

    settings.py   what the command takes
    data.py       edits of runs and recorded trees, as conversations of a length that the model can read
    rewards.py    rules: a whole file, a real kernel that is launched, no retreat to torch; and what the evaluator finds
    trainers.py   supervised fine-tuning, then GRPO, both through trl
    samples.py    the same requests answered before and after
    results.py    curves and tables of a training
    train.py      all together

The packages it needs are the extra `trl`; importing this loads none of them.
"""
