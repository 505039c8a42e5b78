#!/bin/bash
# JudgeLM-7B end to end: data, memory plan, training as in the paper's Table 7, PandaLM test set, and report.
#   pandalm=testset-v1.json bash configs/recipes/judgelm_7b.sh
# Needs the `train` extra, 8 GPUs with at least 40 GB, the hub (data and base model), and data/testset-v1.json from the
# repository WeOpenML/PandaLM. The same command continues an interrupted run. Untested at this size; small.sh runs the
# same steps.
set -euo pipefail

out=${out:-runs/judgelm_7b}
base=${base:-lmsys/vicuna-7b-v1.3}
pandalm=${pandalm:-testset-v1.json}
gpus=${gpus:-8}
gpu_memory=${gpu_memory:-40}                     # GiB per GPU
accelerate=${accelerate:-configs/accelerate/zero3.yaml}
sharding=${sharding:-zero3}                      # name of the file in configs/accelerate
mkdir -p "$out"

# fail before training if PandaLM's file is missing
judgelm data import pandalm "$pandalm" -o "$out/pandalm.jsonl" --overwrite

hf download BAAI/JudgeLM-100K judgelm_train_100k.jsonl --repo-type dataset --local-dir "$out/judgelm-100k"
judgelm data build --config configs/data/build.yaml "inputs=[$out/judgelm-100k/judgelm_train_100k.jsonl]" "out=$out/data"

judgelm doctor --train configs/train/judgelm_7b.yaml --shape llama-7b \
    --gpus "$gpus" --sharding "$sharding" --gpu-memory "$gpu_memory" --json "$out/memory.json"
[ -e "$out/judge/judge.json" ] ||
    accelerate launch --config_file "$accelerate" --num_processes "$gpus" train/sft.py \
        --config configs/train/judgelm_7b.yaml --model_name_or_path "$base" \
        --train_data "$out/data/train.parquet" --output_dir "$out/judge"

judgelm-batch "$out/pandalm.jsonl" -o "$out/judgments.jsonl" --model "$out/judge" --both-orders --order-rule tie
judgelm eval "$out/judgments.jsonl" --labels "$out/pandalm.jsonl" --protocol pandalm --json "$out/eval.json"
judgelm report "$out/judgments.jsonl" --labels "$out/pandalm.jsonl" --protocol pandalm -o "$out/report.html" \
    --title "JudgeLM-7B on PandaLM's test set"
