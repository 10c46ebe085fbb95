#!/usr/bin/env bash
# Serves the small model, searches with it alone (coder=llm), with rules first (coder=auto) and with rules alone
# (coder=rewriter), and counts what became of its replies. Takes an hour or two on two cores.
#     examples/local_model/run.sh [FOLDER] [TASK] [EVALUATIONS]
set -euo pipefail
FOLDER=${1:-runs/local_model}
TASK=${2:-softmax}
EVALUATIONS=${3:-20}
HERE=$(dirname "$0")

coproc SERVER { exec python "$HERE/serve.py"; }
trap 'kill "$SERVER_PID"' EXIT
read -r API_BASE <&"${SERVER[0]}"
echo "the model answers at $API_BASE"

unset OPENAI_API_KEY # the server asks for none, and yours does not go to it
MODEL=(model.name=openai/smollm2 model.api_base="$API_BASE" model.max_tokens=1024 model.timeout_s=600)
for CODER in llm auto; do
  mtmc search task="$TASK" coder="$CODER" "${MODEL[@]}" budget.evaluations="$EVALUATIONS" out="$FOLDER/$CODER"
done
mtmc search task="$TASK" coder=rewriter budget.evaluations="$EVALUATIONS" out="$FOLDER/rewriter"
PYTHONPATH="$HERE/../.." python "$HERE/../../benchmarks/reply_kinds.py" "$FOLDER"/{llm,auto,rewriter} \
  --about "SmolLM2-135M-Instruct, 4 bits (Q4_1), served by llama.cpp on this machine's cores." \
  --out "$FOLDER/reply_kinds"
