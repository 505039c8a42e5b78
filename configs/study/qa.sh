#!/bin/bash
# QA-Judge from questions to tables: two models answer questions about a context in tags, and judges decide if exact
# match does not. One judge uses the paper's five prompts (Table 7), and both answering models judge with the first prompt
# (self-preference, Table 6). The study compares exact match, F1, and judges, and human labels if you have them.
#   bash configs/study/qa.sh
# The defaults, eight questions and SmolLM2-135M-Instruct, only show the steps; they prove nothing. The same command
# continues an interrupted run. Use another folder for other values. For about 1,000 HotpotQA questions with all answer
# types (agent_1 and agent_2 are the answering models):
#   out=runs/mine published=hotpot_dev_distractor_v1.json judge=MODEL bash configs/study/qa.sh
# Human labels (rows with id and label) add Tables 2, 4, 7, and 10: more=--human=labels.jsonl. The self-preference
# thresholds assume seven judges; add a run and a `-j` for each further judge.
set -euo pipefail

out=${out:-runs/qa}
published=${published:-examples/short_answers.jsonl}    # HotpotQA, 2WikiMultiHopQA, DROP, Quoref, rows with a context
target=${target:-1000}
small=${JUDGELM_CACHE:-$HOME/.cache/judgelm}/gguf/b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
judge=${judge:-$small}
agent_1=${agent_1:-$small}
agent_2=${agent_2:-$small}
engine=${engine:-auto}
agent_engine=${agent_engine:-auto}
temperature=${temperature:-0.7}                  # of the second agent; the first agent and the judges are greedy
wording=${wording:-paper}                        # first prompt: paper (Table 9) or released (the authors' file)
tokens=${tokens:-96}                             # per answer or judgment; the authors' code uses 512
tags=${tags:-first}                              # first (as in the original code, untagged replies are answers) or last
labels=${labels:-strict}                         # strict, or original, which like the authors' code ignores failures
more=${more:---failures=excluded}                # study options; --human=labels.jsonl adds human labels
mkdir -p "$out"

if [[ "$judge $agent_1 $agent_2" == *"$small"* ]]; then
    judgelm judges install small-judge
fi

python data_tools/study_rows.py questions "$published" -o "$out/questions.jsonl" --target "$target" --overwrite
agent=engine=$agent_engine,tags=$tags,max_tokens=$tokens
judgelm data answers collect "$out/questions.jsonl" -o "$out/answers" --task qa \
    --generator "name=agent-1,model=$agent_1,$agent" \
    --generator "name=agent-2,model=$agent_2,$agent,temperature=$temperature,seed=1"
judgelm data answers rows "$out/questions.jsonl" --task qa -o "$out/answered.jsonl" \
    --answers "$out/answers/agent-1.jsonl" "$out/answers/agent-2.jsonl"

for run in six-shot zero-shot two-shot no-context reworded judged-by-agent-1 judged-by-agent-2; do
    model=$judge shots=6 context=true words=$wording
    case $run in
        zero-shot) shots=0 words=paper ;;
        two-shot) shots=2 words=paper ;;
        no-context) context=false words=paper ;;
        reworded) words=reworded ;;
        judged-by-agent-1) model=$agent_1 ;;
        judged-by-agent-2) model=$agent_2 ;;
    esac
    judgelm-batch "$out/answered.jsonl" -o "$out/$run.jsonl" --model "$model" --engine "$engine" --mode qa \
        --mode-arg "shots=$shots" --mode-arg "with_context=$context" --mode-arg "wording=$words" \
        --mode-arg "labels=$labels" --mode-arg "max_tokens=$tokens" --max-failure-rate 1
done

# shellcheck disable=SC2086  # $more is split into its options
judgelm study qa "$out/answered.jsonl" -j "judge=$out/six-shot.jsonl" -j "judge:zero-shot=$out/zero-shot.jsonl" \
    -j "judge:2-shot=$out/two-shot.jsonl" -j "judge:no-context=$out/no-context.jsonl" \
    -j "judge:reworded=$out/reworded.jsonl" -j "agent-1=$out/judged-by-agent-1.jsonl" \
    -j "agent-2=$out/judged-by-agent-2.jsonl" $more -o "$out/study" --overwrite
