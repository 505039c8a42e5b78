#!/bin/bash
# From rows to a judged benchmark: the steps of judgelm_7b.sh on two CPU cores, with a few dozen rows.
#   bash configs/recipes/small.sh
# Needs the `train` extra. Uses the small judge's base, SmolLM2-135M-Instruct (Apache-2.0); the first run downloads
# 93 MB. A few dozen synthetic rows show the steps, but do not make a good judge.
# The same command skips finished steps. Use another folder for other rows or another benchmark:
#   out=runs/mine rows=labelled.jsonl benchmark=test.jsonl bash configs/recipes/small.sh
set -euo pipefail

out=${out:-runs/recipe-small}
rows=${rows:-$out/synthetic/train.jsonl}         # labelled pairs to train on; the default is generated below
benchmark=${benchmark:-examples/pairs.jsonl}     # labelled pairs to judge
gpu_memory=${gpu_memory:-24}                     # GiB of the GPU in the memory plan; training runs on the CPU
small=${JUDGELM_CACHE:-$HOME/.cache/judgelm}/gguf/b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
base=${base:-$small}

if [ "$base" = "$small" ]; then
    judgelm judges install small-judge
fi

[ -e "$rows" ] ||
    python data_tools/make_synthetic.py --out "$out/synthetic" --pretrain-rows 1 --train-rows 48 --test-rows 1
judgelm data build --config configs/data/build.yaml "inputs=[$rows]" "out=$out/data" format=jsonl \
    validation=0.1 'subsets=[]'

judgelm doctor --train configs/train/few_pairs.yaml --set "model_name_or_path=$base" \
    --gpu-memory "$gpu_memory" --json "$out/memory.json"
[ -e "$out/judge/judge.json" ] ||
    accelerate launch --config_file configs/accelerate/cpu.yaml train/preference.py \
        --config configs/train/few_pairs.yaml --bf16 false --dtype float32 --reference_drop_prob 1.0 \
        --model_name_or_path "$base" --train_data "$out/data/train.jsonl" --output_dir "$out/judge"

judgelm-batch "$benchmark" -o "$out/judgments.jsonl" --model "$base" --adapter "$out/judge" --max-failure-rate 1
judgelm eval "$out/judgments.jsonl" --labels "$benchmark" --json "$out/eval.json"
judgelm report "$out/judgments.jsonl" --labels "$benchmark" -o "$out/report.html" \
    --title "A judge of a few dozen rows on $benchmark"
