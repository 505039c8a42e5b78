#!/bin/bash
# JudgeLM's tables from labelled pairs: two judges judge in both orders, and each gets rows in the paper's Tables 1, 3.
#   bash configs/study/judgelm.sh
# By default, it uses the repository's pairs, the small judge, and its base, to show the steps. The same command
# continues an interrupted run. Use another folder for other judges or pairs. For JudgeLM's validation set:
#   out=runs/mine pairs=judgelm_val_5k.jsonl judge_1=A judge_2=B bash configs/study/judgelm.sh
set -euo pipefail

out=${out:-runs/judgelm}
pairs=${pairs:-examples/pairs.jsonl}             # labelled pairs
small=${JUDGELM_CACHE:-$HOME/.cache/judgelm}/gguf/b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
judge_1=${judge_1:-small-judge}
judge_2=${judge_2:-$small}
engine=${engine:-auto}
mkdir -p "$out"

if [ "$judge_1" = small-judge ] || [ "$judge_2" = "$small" ]; then
    judgelm judges install small-judge
fi

judgelm-batch "$pairs" -o "$out/judge-1.jsonl" --model "$judge_1" --engine "$engine" --both-orders --max-failure-rate 1
judgelm-batch "$pairs" -o "$out/judge-2.jsonl" --model "$judge_2" --engine "$engine" --both-orders \
    --reading score-line --max-failure-rate 1

judgelm study judgelm configs/study/judgelm_two_judges.yaml --runs "$out" --labels "$pairs" -o "$out/study" --overwrite
