#!/bin/bash
# SSR-Judge from questions to tables: a generator argues for the right option and for a wrong one. Each pair of responses
# is judged without a reference, always with the judge's majority answer, and selectively. All three use the same five
# answers of the judge, and the study compares them at every tau.
#   bash configs/study/ssr.sh
# The defaults are a dozen questions and SmolLM2-135M-Instruct. It is good enough as the generator, but most of its
# judgments fail to parse and are counted as failures, so use another judge. The same command continues an interrupted
# run. Use another folder for other values. For MMLU-Pro with 100 questions per subject:
#   out=runs/mine published=questions.jsonl judge=MODEL bash configs/study/ssr.sh
set -euo pipefail

out=${out:-runs/ssr}
published=${published:-examples/multiple_choice.jsonl}    # MMLU-Pro's fields: question_id, category, ...
field=${field:-category}                         # at most `size` questions per value
size=${size:-100}
small=${JUDGELM_CACHE:-$HOME/.cache/judgelm}/gguf/b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
judge=${judge:-$small}
generator=${generator:-$small}
engine=${engine:-auto}
generator_engine=${generator_engine:-auto}
samples=${samples:-5}                            # answers of the judge per question, k in the paper
temperature=${temperature:-0.7}
tau=${tau:-0.8}                                  # minimum agreement among these answers to use a reference
tokens=${tokens:-96}                             # per answer or judgment; models with long reasoning need 1024
forced=${forced:-no}                             # yes: count a reply without a verdict as the more probable label
mkdir -p "$out"

if [[ "$judge $generator" == *"$small"* ]]; then
    judgelm judges install small-judge
fi

judgelm data import mmlu-pro "$published" -o "$out/all.jsonl" --overwrite
judgelm data sample "$out/all.jsonl" --per "$field" "$size" -o "$out/questions.jsonl" --overwrite

python data_tools/study_rows.py generator-prompts "$out/questions.jsonl" -o "$out/prompts.jsonl" --overwrite
judgelm data answers collect "$out/prompts.jsonl" -o "$out/answers" \
    --generator "name=generator,model=$generator,engine=$generator_engine,max_tokens=$tokens"
python data_tools/study_rows.py pairs "$out/questions.jsonl" --answers "$out/answers/generator.jsonl" \
    -o "$out/pairs.jsonl" --overwrite
judgelm data answers collect "$out/questions.jsonl" -o "$out/own" --task choice --samples "$samples" \
    --temperature "$temperature" --generator "name=judge,model=$judge,engine=$engine,max_tokens=$tokens"

for when in never always; do
    judgelm-batch "$out/pairs.jsonl" -o "$out/$when.jsonl" --model "$judge" --engine "$engine" --mode ssr \
        --mode-arg "when=$when" --mode-arg "solves=$samples" --mode-arg "max_tokens=$tokens" \
        --mode-arg "retry_unparseable=$forced" --self-answers "$out/own/judge.jsonl" --max-failure-rate 1
done

judgelm study ssr --never "$out/never.jsonl" --always "$out/always.jsonl" --truth "$out/pairs.truth.jsonl" \
    --tau "$tau" -o "$out/study" --overwrite
