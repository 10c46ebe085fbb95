"""The policy `lm`: a small language model that scores the sentences of actions, with an adapter that is trained.

    base.py  gguf.py      the model under the adapter, and where it comes from
    prompt.py             a version as text, and the answer; tokens.py: both as tokens
    packing.py            a prompt and all its answers as one sequence; scoring.py: how likely each is
    adapter.py            LoRA: made, written, read
    policy.py             what a search asks; `mtmc.rl.train.lm_scorer` is what `mtmc train policy=lm` trains

The packages it needs are the extra `lm`; importing this loads none of them.
"""
