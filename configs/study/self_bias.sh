#!/bin/bash
# Play Favorites from questions to tables: two models answer, each rates both models' answers on a rubric, a third judge
# provides reference ratings, and the study separates self-bias from quality.
#   bash configs/study/self_bias.sh
# The defaults, a dozen questions and SmolLM2-135M-Instruct, only show the steps; they prove nothing. The paper uses
# human ratings as the reference: if you have some, replace the last step by `judgelm study self-bias RATINGS --run ...
# --rows ...`. The same command continues an interrupted run. Use another folder for other values. Self-bias needs
# different models:
#   out=runs/mine published=rows.jsonl model_1=A model_2=B reference=C bash configs/study/self_bias.sh
set -euo pipefail

out=${out:-runs/self-bias}
published=${published:-examples/multiple_choice.jsonl}    # rows with question and id
dimension=${dimension:-helpfulness}
small=${JUDGELM_CACHE:-$HOME/.cache/judgelm}/gguf/b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
model_1=${model_1:-$small}
model_2=${model_2:-$small}
reference=${reference:-$small}
engine=${engine:-auto}
temperature=${temperature:-0.7}                  # of the answers; ratings are greedy
tokens=${tokens:-96}
checks=${checks:---no-checks}                    # with three or more models: --checks
forced=${forced:-yes}                            # count a reply without a level as the most probable level
mkdir -p "$out"

if [[ "$model_1 $model_2 $reference" == *"$small"* ]]; then
    judgelm judges install small-judge
fi

judgelm data answers collect "$published" -o "$out/answers" --samples 1 --temperature "$temperature" \
    --generator "name=model-1,model=$model_1,engine=$engine,max_tokens=$tokens" \
    --generator "name=model-2,model=$model_2,engine=$engine,max_tokens=$tokens"
judgelm data answers rows "$published" -o "$out/answered.jsonl" \
    --answers "$out/answers/model-1.jsonl" "$out/answers/model-2.jsonl"

rubric=(--mode rubric --mode-arg "dimensions=[$dimension]" --mode-arg "max_tokens=$tokens"
    --mode-arg "retry_unparseable=$forced" --engine "$engine" --max-failure-rate 1)
judgelm-batch "$out/answered.jsonl" -o "$out/model-1.jsonl" --model "$model_1" "${rubric[@]}"
judgelm-batch "$out/answered.jsonl" -o "$out/model-2.jsonl" --model "$model_2" "${rubric[@]}"
judgelm-batch "$out/answered.jsonl" -o "$out/reference.jsonl" --model "$reference" "${rubric[@]}"

judgelm study self-bias --run "model-1=$out/model-1.jsonl" --run "model-2=$out/model-2.jsonl" \
    --run "reference=$out/reference.jsonl" --rows "$out/answered.jsonl" --reference reference "$checks" \
    -o "$out/study" --overwrite
