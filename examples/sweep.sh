#!/usr/bin/env bash
# A sweep over strategies, budgets and seeds, then its table, CSV and plot (see the folder it prints).
set -euo pipefail
FOLDER=${1:-runs/sweep}
mtmc search -m task=softmax_gelu budget.evaluations=4,8 strategy=mcts,greedy seed=0,1 hydra.sweep.dir="$FOLDER"
mtmc report "$FOLDER"
