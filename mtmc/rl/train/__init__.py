"""Training a policy on recorded trees (`mtmc train`). It knows of a network only what `mtmc.rl.scorer` says.

settings.py       what is asked for
data.py  open_space.py     recorded trees -> forests of training and validation; the ablation without an action space
rollouts.py  table.py      many episodes at once, by a scorer that is asked once for each state
advantages.py  loss.py  algorithms.py  ragged.py     PPO and GRPO: pure functions, and their settings
pretraining.py    the supervised start
validate.py       searches and greedy lines replayed on the validation trees
trainer.py  checkpoint.py  history.py     the loop, what it can be resumed from, its curves
scorers.py  run.py  card.py               the registry of networks; a whole training, from folder to folder
"""
