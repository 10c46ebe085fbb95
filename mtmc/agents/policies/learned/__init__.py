"""Learned policies, as far as a search needs them; `mtmc.rl` trains them.

compact/      a small network over typed features
lm/           a language model that scores the actions' sentences
features.py   a version and its actions as vectors; of stages.py (its stages), fit.py (their settings) and graphs.py
              (what a task computes as plain data; whether two tasks compute the same)
"""
