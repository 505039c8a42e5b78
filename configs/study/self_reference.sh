#!/bin/bash
# Self-Reference (Do Before You Judge) from questions to tables: two agents answer, and a judge answers too. It judges
# the agents once with chain of thought alone and once guided by its answer, and the study compares both.
#   bash configs/study/self_reference.sh
# All answers and judgments are greedy, as in the paper (appendix A), so use two different models as agents. The
# defaults, a dozen problems and SmolLM2-135M-Instruct, only show the steps; they prove nothing. The same command
# continues an interrupted run. Use another folder for other values.
# For GSM8K with your own models and 100 questions, as in the paper (section 3.3):
#   out=runs/mine published=test.jsonl judge=MODEL agent_1=A agent_2=B bash configs/study/self_reference.sh
# GSM-Symbolic: benchmark=gsm-symbolic published=GSM_p1.jsonl, then with GSM_p2.jsonl and another `out`
# MMLU-Pro, 100 questions of each subject: benchmark=mmlu-pro task=choice field=category
set -euo pipefail

out=${out:-runs/self-reference}
benchmark=${benchmark:-gsm8k}
published=${published:-examples/word_problems.jsonl}    # GSM8K's test.jsonl, GSM_p1.jsonl, MMLU-Pro's questions
task=${task:-number}
field=${field:-data_set}                         # at most `size` questions per value
size=${size:-100}
small=${JUDGELM_CACHE:-$HOME/.cache/judgelm}/gguf/b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
judge=${judge:-$small}
agent_1=${agent_1:-$small}
agent_2=${agent_2:-$small}
engine=${engine:-auto}
agent_engine=${agent_engine:-auto}
tokens=${tokens:-128}                            # per answer or judgment; models with long reasoning need 1024
forced=${forced:-yes}                            # count a reply without a verdict as the more probable label
mkdir -p "$out"

if [[ "$judge $agent_1 $agent_2" == *"$small"* ]]; then
    judgelm judges install small-judge
fi

judgelm data import "$benchmark" "$published" -o "$out/all.jsonl" --overwrite
judgelm data sample "$out/all.jsonl" --per "$field" "$size" -o "$out/questions.jsonl" --overwrite

judgelm data answers collect "$out/questions.jsonl" -o "$out/answers" --task "$task" \
    --generator "name=agent-1,model=$agent_1,engine=$agent_engine,max_tokens=$tokens" \
    --generator "name=agent-2,model=$agent_2,engine=$agent_engine,max_tokens=$tokens"
judgelm data answers collect "$out/questions.jsonl" -o "$out/own" --task "$task" --samples 1 --temperature 0 \
    --generator "name=judge,model=$judge,engine=$engine,max_tokens=$tokens"
judgelm data answers rows "$out/questions.jsonl" --task "$task" -o "$out/answered.jsonl" \
    --answers "$out/answers/agent-1.jsonl" "$out/answers/agent-2.jsonl"

correctness=(--mode correctness --mode-arg "task=$task" --mode-arg "max_tokens=$tokens"
    --mode-arg "retry_unparseable=$forced" --model "$judge" --engine "$engine" --max-failure-rate 1)
judgelm-batch "$out/answered.jsonl" -o "$out/cot.jsonl" "${correctness[@]}"
judgelm-batch "$out/answered.jsonl" -o "$out/guided.jsonl" "${correctness[@]}" --mode-arg self_reference=guided \
    --self-answers "$out/own/judge.jsonl"

judgelm study self-reference --cot "judge=$out/cot.jsonl" --guided "judge=$out/guided.jsonl" \
    --truth "$out/answered.truth.jsonl" -o "$out/study" --overwrite
