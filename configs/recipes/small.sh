#!/bin/bash
# From rows to a judged benchmark on two CPU cores, with a few dozen rows: the steps of judgelm_7b.sh in small.
#   bash configs/recipes/small.sh
# Needs the extra `train`. The base is the small judge's, SmolLM2-135M-Instruct (Apache-2.0): 93 MB are downloaded where
# `judgelm judges install small-judge` has not been run before. The judge learns the form of a score line and hardly more.
# The same command continues an interrupted run. Other rows and another benchmark go into another folder:
#   out=runs/mine rows=labelled.jsonl benchmark=test.jsonl bash configs/recipes/small.sh
set -euo pipefail

out=${out:-runs/recipe-small}
rows=${rows:-$out/synthetic/train.jsonl}         # labelled pairs to train on; the default is made below
benchmark=${benchmark:-examples/pairs.jsonl}     # labelled pairs to be judged
gpu_memory=${gpu_memory:-24}                     # GiB of the GPU that the plan is for; training runs on the CPU
small=${JUDGELM_CACHE:-$HOME/.cache/judgelm}/gguf/b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
base=${base:-$small}

if [ "$base" = "$small" ]; then
    judgelm judges install small-judge
fi

[ -e "$rows" ] ||
    python data_tools/make_synthetic.py --out "$out/synthetic" --pretrain-rows 1 --train-rows 48 --test-rows 1
judgelm data build --config configs/data/build.yaml "inputs=[$rows]" "out=$out/data" format=jsonl \
    validation=0.1 'subsets=[]'

judgelm doctor --train configs/train/few_rows.yaml --set "model_name_or_path=$base" \
    --gpu-memory "$gpu_memory" --json "$out/memory.json"
[ -e "$out/judge/judge.json" ] ||
    accelerate launch --config_file configs/accelerate/cpu.yaml train/sft.py --config configs/train/few_rows.yaml \
        --model_name_or_path "$base" --train_data "$out/data/train.jsonl" --output_dir "$out/judge"

judgelm-batch "$benchmark" -o "$out/judgments.jsonl" --model "$base" --adapter "$out/judge" --both-orders \
    --max-failure-rate 1
judgelm eval "$out/judgments.jsonl" --labels "$benchmark" --json "$out/eval.json"
judgelm report "$out/judgments.jsonl" --labels "$benchmark" -o "$out/report.html" \
    --title "A judge of a few dozen rows on $benchmark"
