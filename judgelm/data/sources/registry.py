"""The table of sources (layouts, preference sets, benchmarks, published judgments), their look-up and recognition.

A file is recognised by the first row of the table whose fields (`needs`) its first row has, so sets with more fields
stand before the layouts that they resemble. Sources without `needs` are read only by their name.
"""

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from judgelm.data.readers.fields import ID_FIELDS
from judgelm.data.readers.files import first_row
from judgelm.data.readers.rows import Row, row_error
from judgelm.data.sources.alpaca_eval import are_tables, load_alpaca_eval
from judgelm.data.sources.codes import FROM_ONE, FROM_ZERO, ZERO_IS_TIE, FieldCode
from judgelm.data.sources.correctness import load_gsm8k, load_gsm8k_pairs, load_gsm_symbolic, load_mmlu_pro
from judgelm.data.sources.dialogues import dialogue_sample
from judgelm.data.sources.graded import load_judge_bench, load_mm_vet, load_prometheus
from judgelm.data.sources.judgments import (
    ANNOTATION_NEEDS,
    ARENA_NEEDS,
    CHERRY_NEEDS,
    JUDGEBENCH_NEEDS,
    LLMBAR_NEEDS,
    MEAN_OF_ORDERS,
    MMLU_PRO_NEEDS,
    PAIR_NEEDS,
    SINGLE_NEEDS,
    read_alpaca_eval,
    read_arena_hard,
    read_auto_j,
    read_cherry,
    read_fastchat_grade,
    read_fastchat_pair,
    read_judgebench_row,
    read_llmbar,
    read_mmlu_pro,
    read_pandalm,
    read_review_files,
    rows_reader,
)
from judgelm.data.sources.layouts import (
    alpaca_eval_label,
    alpaca_eval_sample,
    any_label,
    judgelm_label,
    judgelm_sample,
    label_alone,
    llmbar_label,
    llmbar_sample,
    load_judgelm,
    no_sample,
    pandalm_label,
    pandalm_sample,
    pandalm_train_label,
    pandalm_train_sample,
    plain_label,
    plain_sample,
)
from judgelm.data.sources.mt_bench import load_mt_bench
from judgelm.data.sources.pairs import (
    AUTO_J,
    AUTO_J_GROUPS,
    JUDGEBENCH,
    LLMBAR,
    PANDALM,
    SYSTEM_PAIRS,
    auto_j_entry,
    auto_j_label,
    auto_j_sample,
    judgebench_label,
    judgebench_sample,
    llmbar_entry,
    load_faireval,
    load_side_by_side,
    pandalm_entry,
)
from judgelm.data.sources.preference_sets import (
    HELPSTEER2,
    PPE_CORRECTNESS,
    REWARDBENCH_NEEDS,
    RM_BENCH_SECTIONS,
    RMB_SECTIONS,
    SECOND_SUBSETS,
    SECTIONS,
    feedback_collection_fields,
    helpsteer2_fields,
    helpsteer3_fields,
    label_by,
    load_helpsteer2,
    load_ppe_correctness,
    load_rm_bench,
    load_rmb,
    nectar_fields,
    offsetbias_fields,
    ppe_correctness_fields,
    ppe_human_fields,
    preference_collection_fields,
    rewardbench_2_entry,
    rewardbench_entry,
    safe_rlhf_fields,
    sample_by,
    ultrafeedback_fields,
)
from judgelm.data.sources.preferences import (
    arena_sample,
    battle_label,
    pair_label,
    pair_label_alone,
    preference_label,
    preference_sample,
    responses_sample,
)
from judgelm.data.sources.qa import QA_NAMES, load_evouna, load_qa
from judgelm.data.sources.reviews import NEEDS
from judgelm.data.sources.source import Protocol, PublishedRuns, Shape, Source
from judgelm.errors import ConfigError, InputError, not_found

WINNER_CODE = (FieldCode(fields=("winner", "votes")),)
"""The code of layouts that do not state it."""

_BATTLE_LABELS = "winner_model_a, winner_model_b / winner / score / scores / score_1, score_2 / score_a, score_b"

TABLE: tuple[Source, ...] = (
    Source(
        name="judgebench",
        needs=JUDGEBENCH.needs,
        fields={
            "id": "pair_id",
            "question": "question",
            "answers": "response_A, response_B",
            "category": "source",
            "label": "label",
        },
        sample=judgebench_sample,
        label=judgebench_label,
        protocol=Protocol(
            files="one or more files of pairs, dataset=judgebench,response_model=....jsonl",
            metric="Each pair is judged in both orders; it counts as right where both name the right answer, or "
            "one does and the other says tie or cannot be read; all else is wrong; accuracy overall and per "
            "category.",
            judge_with="--both-orders",
            paper="JudgeBench (Tan et al. 2024), ScalerLab/JudgeBench, data/ and utils/metrics.py",
        ),
        runs=PublishedRuns(
            files="outputs/dataset=judgebench,response_model=...,judge_name=...,judge_model=....jsonl",
            needs=JUDGEBENCH_NEEDS,
            read=rows_reader(JUDGEBENCH_NEEDS, read_judgebench_row),
            paper="JudgeBench (Tan et al. 2024), ScalerLab/JudgeBench, outputs/ and utils/metrics.py; a decision "
            "names places",
        ),
    ),
    Source(
        name="auto-j",
        needs=AUTO_J.needs,
        fields={"question": "prompt", "answers": "response 1, response 2", "category": "scenario", "label": "label"},
        sample=auto_j_sample,
        label=auto_j_label,
        protocol=Protocol(
            files="testdata_pairwise.jsonl",
            metric="Agreement is the share of pairs on which both orders give the human label (1, 2 or tie), "
            "consistency the share on which both orders say the same, overall, per group of scenarios (8) and per "
            "scenario (58).",
            judge_with="--both-orders --order-rule tie",
            paper="Auto-J (Li et al. 2023), GAIR-NLP/auto-j, data/test/ and codes/leaderboard/pairwise_eval.py",
            details={"groups": {group: list(scenarios) for group, scenarios in AUTO_J_GROUPS.items()}},
        ),
        runs=PublishedRuns(
            files="the outputs on testdata_pairwise.jsonl, and those on the exchanged responses",
            needs=("output",),
            read=read_auto_j,
            paper="Auto-J (Li et al. 2023), GAIR-NLP/auto-j, data/outputs and codes/leaderboard/pairwise_eval.py",
            recognised=lambda row: row.data.keys() == {"output"},
        ),
        entry=auto_j_entry,
    ),
    Source(
        name="helpsteer3",
        needs=("context", "response1", "response2", "overall_preference"),
        fields={
            "question": "context",
            "answers": "response1, response2",
            "category": "domain",
            "label": "overall_preference",
        },
        sample=sample_by(helpsteer3_fields, responses_sample),
        label=label_by(helpsteer3_fields, battle_label),
    ),
    Source(
        name="helpsteer2",
        needs=HELPSTEER2.needs,
        fields={"question": "prompt", "answers": "response", "label": "helpfulness"},
        sample=sample_by(helpsteer2_fields, plain_sample),
        label=label_by(helpsteer2_fields, plain_label),
        protocol=Protocol(
            files="train.jsonl or validation.jsonl",
            metric="Accuracy is the share of pairs whose more helpful response the judge prefers, in both orders; "
            "equal ratings of helpfulness are ties.",
            judge_with="--both-orders",
            paper="HelpSteer2 (Wang et al. 2024), nvidia/HelpSteer2",
            unverified="the published files could not be had: fields and order of rows are those of the data card",
        ),
        load=load_helpsteer2,
    ),
    Source(
        name="ppe-human",
        needs=("prompt", "response_1", "response_2", "winner", "model_a", "model_b"),
        fields={
            "id": "question_id",
            "question": "prompt",
            "answers": "response_1, response_2",
            "models": "model_a, model_b",
            "label": "winner",
        },
        sample=sample_by(ppe_human_fields, responses_sample),
        label=label_by(ppe_human_fields, battle_label),
        code=WINNER_CODE,
    ),
    Source(
        name="ppe-correctness",
        needs=PPE_CORRECTNESS.needs,
        fields={"id": "question_id", "question": "prompt", "answers": "response_1, response_2", "label": "scores"},
        sample=sample_by(ppe_correctness_fields, plain_sample),
        label=label_by(ppe_correctness_fields, plain_label),
        protocol=Protocol(
            files="mmlu_pro, math, gpqa, ifeval or mbpp-plus of the best-of-k sets",
            metric="Accuracy is the share of the drawn pairs of a right and a wrong response whose right one the "
            "judge prefers, in both orders.",
            judge_with="--both-orders",
            paper="PPE (Frick et al. 2024), lmarena/PPE",
            unverified="the published files could not be had: fields are those of the authors' code",
        ),
        load=load_ppe_correctness,
    ),
    Source(
        name="safe-rlhf",
        needs=("prompt", "response_0", "response_1", "better_response_id"),
        fields={
            "question": "prompt",
            "answers": "response_0, response_1",
            "category": "prompt_source",
            "label": "better_response_id",
        },
        sample=sample_by(safe_rlhf_fields, plain_sample),
        label=label_by(safe_rlhf_fields, plain_label),
        code=(FieldCode(fields=("better_response_id",), values=FROM_ZERO),),
    ),
    Source(
        name="ultrafeedback",
        needs=("instruction", "completions"),
        fields={"question": "instruction", "answers": "completions", "category": "source", "label": "completions"},
        sample=sample_by(ultrafeedback_fields, plain_sample),
        label=label_by(ultrafeedback_fields, plain_label),
    ),
    Source(
        name="preference_collection",
        needs=("orig_instruction", "orig_response_A", "orig_response_B", "orig_criteria", "orig_preference"),
        fields={
            "question": "orig_instruction",
            "answers": "orig_response_A, orig_response_B",
            "reference": "orig_reference_answer",
            "label": "orig_preference",
        },
        sample=sample_by(preference_collection_fields, plain_sample),
        label=label_by(preference_collection_fields, plain_label),
    ),
    Source(
        name="feedback_collection",
        needs=("orig_instruction", "orig_response", "orig_criteria", "orig_score"),
        fields={
            "question": "orig_instruction",
            "answers": "orig_response",
            "reference": "orig_reference_answer",
            "label": "orig_score",
        },
        sample=sample_by(feedback_collection_fields, plain_sample),
        label=label_by(feedback_collection_fields, plain_label),
    ),
    Source(
        name="nectar",
        needs=("prompt", "answers", "good_natured"),
        fields={"question": "prompt", "answers": "answers", "label": "answers"},
        sample=sample_by(nectar_fields, preference_sample),
        label=label_by(nectar_fields, preference_label),
    ),
    Source(
        name="offsetbias",
        needs=("instruction", "output_1", "output_2", "label"),
        fields={"question": "instruction", "answers": "output_1, output_2", "label": "label"},
        sample=sample_by(offsetbias_fields, llmbar_sample),
        label=label_by(offsetbias_fields, llmbar_label),
        code=(FieldCode(fields=("label",), values=FROM_ONE),),
    ),
    Source(
        name="dialogue",
        needs=("turns",),
        fields={
            "id": "id / question_id / idx / review_id",
            "turns": "turns",
            "models": "answer_models / model_a, model_b / model_1, model_2",
            "label": _BATTLE_LABELS,
        },
        sample=dialogue_sample,
        label=battle_label,
        code=WINNER_CODE,
    ),
    Source(
        name="judgelm",
        needs=("question_body", "answer1_body", "answer2_body"),
        fields={
            "id": "question_id / id / review_id / idx",
            "question": "question_body",
            "answers": "answer1_body, answer2_body",
            "models": "answer1_model_id, answer2_model_id",
            "reference": "reference",
            "label": "score / text / winner / preference",
        },
        sample=judgelm_sample,
        label=judgelm_label,
        code=WINNER_CODE,
        soft="probability",
        load=load_judgelm,
    ),
    Source(
        name="pandalm",
        needs=("instruction", "response1", "response2"),
        fields={
            "id": "idx / id / question_id / review_id",
            "question": "instruction",
            "question, continued": "input",
            "answers": "response1, response2",
            "models": "cmp_key",
            "category": "motivation_app",
            "reference": "reference",
            "label": "annotator1",
        },
        sample=pandalm_sample,
        label=pandalm_label,
        code=(FieldCode(fields=("annotator*",), values=ZERO_IS_TIE),),
        protocol=Protocol(
            files="testset-v1.json",
            metric="The human label is the majority of three annotators; the judge sees each pair in both orders, "
            "a conflict is a tie, and accuracy and macro precision, recall and F1 over 1, 2 and tie are reported.",
            judge_with="--both-orders --order-rule tie",
            paper="PandaLM (Wang et al. 2023), WeOpenML/PandaLM, data/testset-v1.json",
        ),
        runs=PublishedRuns(
            files="gpt-3.5-turbo-testset-v1.json or pandalm-7b-testset-v1.json",
            needs=("idx",),
            read=read_pandalm,
            paper="PandaLM (Wang et al. 2023), WeOpenML/PandaLM, data/",
            recognised=lambda row: any(name.endswith("_result") for name in row.data),
        ),
        shape=PANDALM,
        entry=pandalm_entry,
    ),
    Source(
        name="pandalm_train",
        needs=("inputs", "outputs"),
        fields={
            "id": "idx / id / question_id / review_id",
            "question and answers": "inputs",
            "label and reference": "outputs",
        },
        sample=pandalm_train_sample,
        label=pandalm_train_label,
    ),
    Source(
        name="alpaca-eval",
        needs=("instruction", "output_1", "output_2"),
        fields={
            "id": "id / question_id / idx / review_id",
            "question": "instruction",
            "answers": "output_1, output_2",
            "models": "generator_1, generator_2",
            "category": "dataset",
            "label": "preference",
        },
        sample=alpaca_eval_sample,
        label=alpaca_eval_label,
        soft="alpaca_eval",
        single_votes=True,
        protocol=Protocol(
            files="annotations.json files, or the folder of instructions.parquet, outputs.parquet and "
            "judgments.parquet",
            metric="Training data rather than a test: judgments by models, of which P(first better) is 2 - "
            "preference, and 0.5 for a tie; agreement is the share of pairs whose more probable answer the judge "
            "prefers.",
            judge_with="--both-orders",
            paper="AlpacaEval (Li et al. 2023), tatsu-lab/alpaca_eval, results/*/*/annotations.json; CC BY-NC 4.0",
        ),
        load=load_alpaca_eval,
        runs=PublishedRuns(
            files="annotations.json files, or the folder of instructions.parquet, outputs.parquet and "
            "judgments.parquet",
            needs=ANNOTATION_NEEDS,
            read=read_alpaca_eval,
            paper="AlpacaEval (Li et al. 2023), tatsu-lab/alpaca_eval, results/*/*/annotations.json",
            mode={"name": "pair"},
        ),
    ),
    Source(
        name="alpaca_eval_outputs",
        needs=("instruction", "output"),
        fields={"question": "instruction", "answer": "output", "model": "generator"},
        sample=no_sample,
        note="AlpacaEval outputs hold one answer per instruction; give two such files, and they are joined. Where "
        "output is a list of answers, name the columns: --column question=instruction --column answers=output",
    ),
    Source(
        name="llmbar",
        needs=("input", "output_1", "output_2"),
        fields={"question": "input", "answers": "output_1, output_2", "label": "label"},
        sample=llmbar_sample,
        label=llmbar_label,
        code=(FieldCode(fields=("label",), values=FROM_ONE),),
        protocol=Protocol(
            files="one dataset.json for each set, in the folder that names the set",
            metric="Accuracy per set is the mean of the two orders' accuracies, beside it the share of pairs on "
            "which both orders agree (LLMBar's own count takes two unreadable orders for equal) and Cohen's kappa "
            "between the orders; the four Adversarial sets are also averaged with equal weights; there are no ties.",
            judge_with="--both-orders",
            paper="Zeng et al. 2024, Evaluating Large Language Models at Evaluating Instruction Following; LLMBar, "
            "Dataset/",
        ),
        shape=LLMBAR,
        entry=llmbar_entry,
        runs=PublishedRuns(
            files="SET/evaluators/JUDGE/PROMPT/result.json, of one judge and one or more sets",
            needs=LLMBAR_NEEDS,
            read=read_llmbar,
            paper="LLMBar (Zeng et al. 2024), princeton-nlp/LLMBar, Dataset/LLMBar; winners of both orders name "
            "the row's own order, and equal ratings win by place",
        ),
    ),
    Source(
        name="plain",
        needs=("question", "answer_1", "answer_2"),
        fields={
            "id": "id / question_id / idx / review_id",
            "question": "question",
            "answers": "answers / answer_1, answer_2 / answer",
            "models": "answer_models / model_1, model_2",
            "images": "images / image",
            "reference": "reference",
            "category": "category",
            "label": "winner / score / scores / score_1, score_2 / score_a, score_b / preference",
        },
        sample=plain_sample,
        label=plain_label,
        code=WINNER_CODE,
        soft="probability",
    ),
    Source(
        name="preference",
        needs=("chosen", "rejected"),
        fields={
            "id": "id / question_id / idx / review_id",
            "question": "prompt / question / instruction / chosen, rejected",
            "question, continued": "input",
            "answers (placed by a hash of their texts)": "chosen, rejected",
            "models": "chosen_model, rejected_model",
            "reference": "reference",
            "category": "category / subset",
            "label": "chosen, rejected",
            "scores": "score_chosen, score_rejected",
        },
        sample=preference_sample,
        label=preference_label,
    ),
    Source(
        name="arena",
        needs=("conversation_a", "conversation_b"),
        fields={
            "id": "id / question_id / idx / review_id",
            "question and answers": "conversation_a, conversation_b",
            "models": "model_a, model_b",
            "reference": "reference",
            "label": _BATTLE_LABELS,
        },
        sample=arena_sample,
        label=battle_label,
        code=WINNER_CODE,
    ),
    Source(
        name="responses",
        needs=("response_a", "response_b"),
        fields={
            "id": "id / question_id / idx / review_id",
            "question": "prompt / question / instruction",
            "answers": "response_a, response_b",
            "models": "model_a, model_b",
            "reference": "reference",
            "label": _BATTLE_LABELS,
        },
        sample=responses_sample,
        label=battle_label,
        code=WINNER_CODE,
    ),
    Source(
        name="mt-bench",
        protocol=Protocol(
            files="question.jsonl, a file of answers for each model, reference answers, and people's votes (or the "
            "votes alone where they hold their conversations)",
            metric="Each turn counts by itself, turn 2 judged with the whole dialogue shown, in both orders, a "
            "conflict being a tie; agreement is the share of single votes of experts that equal the judge's, with "
            "ties and without; the label here is the experts' strict majority and the votes are kept.",
            judge_with="--mode conversation --both-orders",
            paper="Zheng et al. 2023, Judging LLM-as-a-Judge; lm-sys/FastChat, fastchat/llm_judge",
        ),
        load=load_mt_bench,
    ),
    Source(
        name="faireval",
        protocol=Protocol(
            files="question.jsonl, the answers of the first and of the second model, and review_..._human.txt",
            metric="The judge's scores of both orders are averaged (the paper draws three replies of each), equal "
            "means are a tie; accuracy and Cohen's kappa against the one released label of people (`judgelm study "
            "benchmark`).",
            judge_with="--both-orders --order-rule mean",
            paper="Wang et al. 2023, Large Language Models are not Fair Evaluators; i-Eval/FairEval",
        ),
        load=load_faireval,
    ),
    Source(
        name="rewardbench",
        protocol=Protocol(
            files="the filtered set, as Parquet or JSON lines",
            metric="Accuracy per subset, a tie or a failure counting one half; per section the mean over its "
            "subsets, with their published weights (numbers of prompts, and 984 for math-prm); overall the mean of "
            "the four sections.",
            judge_with="",
            paper="RewardBench (Lambert et al. 2024), allenai/reward-bench, rewardbench/constants.py and scripts",
            details={"sections": {section: dict(weights) for section, weights in SECTIONS.items()}},
        ),
        shape=Shape(name="RewardBench", needs=REWARDBENCH_NEEDS),
        entry=rewardbench_entry,
    ),
    Source(
        name="rewardbench-2",
        protocol=Protocol(
            files="the test set, as Parquet or JSON lines",
            metric="Accuracy per subset is the share of prompts whose chosen answer is alone best of four, a "
            "shared first place counting its share and a failure one quarter; Ties is scored by ratings (all right "
            "answers above all wrong ones, and margins); overall the mean of the six subsets.",
            judge_with="--mode multi",
            paper="RewardBench 2 (Malik et al. 2025), allenai/reward-bench, scripts/run_generative_v2.py",
            details={"subsets": list(SECOND_SUBSETS)},
            unverified="its data could not be had: schema and metric are those of the authors' code and data card",
        ),
        shape=Shape(name="RewardBench 2", needs=REWARDBENCH_NEEDS),
        entry=rewardbench_2_entry,
    ),
    Source(
        name="rmb",
        protocol=Protocol(
            files="files below RMB_dataset/Pairwise_set and RMB_dataset/BoN_set (these folders name the two tasks)",
            metric="A pair counts where the chosen answer wins, a best of n where the best answer wins against "
            "each loser; a tie or a failure does not count; accuracy over all prompts of Helpfulness and "
            "Harmlessness, BoN and Pairwise; overall the mean of the four.",
            judge_with="--both-orders",
            paper="RMB (Zhou et al. 2025), Zhou-Zoey/RMB-Reward-Model-Benchmark, RMB_dataset/ and "
            "eval/scripts/my_run_rm.py; the mean of the four as in RM-R1-UIUC/RM-R1, process_final_result.py",
            details={"sections": list(RMB_SECTIONS)},
        ),
        load=load_rmb,
    ),
    Source(
        name="rm-bench",
        protocol=Protocol(
            files="chat_filtered.json and the like, whose names begin with the domain, or total_dataset.json",
            metric="Each of three styles of the chosen answer (concise, detailed, markdown) is compared with each "
            "of the rejected one: easy where the chosen has more style, normal with the same, hard with less; a "
            "tie or a failure does not count; a domain is the mean of its three difficulties, overall the mean of "
            "the four domains.",
            judge_with="--both-orders",
            paper="RM-Bench (Liu et al. 2025), THU-KEG/RM-Bench, data/, README.md and scripts/utils.py",
            details={"sections": {domain: list(subsets) for domain, subsets in RM_BENCH_SECTIONS.items()}},
            unverified="math_filtered.json and total_dataset.json were not read: their schema is the README's",
        ),
        load=load_rm_bench,
    ),
    Source(
        name="preferences",
        protocol=Protocol(
            files="a preference set: chosen and rejected, arena battles, or pairs of responses",
            metric="Accuracy is the share of pairs whose preferred answer the judge prefers, in both orders; ties "
            "of people are a class of their own; chosen and rejected are placed by a hash of their texts.",
            judge_with="--both-orders",
            paper="layouts preference, arena and responses of judgelm.data.sources.registry",
        ),
    ),
    Source(
        name="judge-bench-nlp",
        protocol=Protocol(
            files="data sets of JUDGE-BENCH with ratings: newsroom.json, summeval.json, roscoe-gsm8k-overall.json, ...",
            metric="Spearman's correlation between the judge's grade of a text and people's mean rating, for each "
            "property; of a data set the mean over its properties; failures and categorical properties are left "
            "out; the property's own prompt is the question, and the grade is on the judge's scale.",
            judge_with="--mode single --mode-arg against=nothing",
            paper="JUDGE-BENCH (Bavaresco et al. 2025), dmg-illc/JUDGE-BENCH, data/, eval_responses.py and "
            "results/utils/generate_tables.py; each data set has a licence of its own",
            unverified="the files of SummEval and of WMT (beyond 4 MB) were not read: their schema is that of "
            "data/README.md",
        ),
        load=load_judge_bench,
    ),
    Source(
        name="evouna",
        protocol=Protocol(
            files="NQ.json, TQ.json, or both",
            metric="Accuracy and F1 (of correct) of the verdicts correct and incorrect against people's, for each "
            "data set and model; a failure counts as the wrong verdict; improper questions are left out; lexical "
            "match beside it asks whether a gold answer occurs in the answer, both normalised as in the authors' "
            "code.",
            judge_with="--mode qa --mode-arg judge_all=true",
            paper="Wang et al. 2023, Evaluating Open-QA Evaluation; wangcunxiang/QA-Eval, EVOUNA/ and "
            "lexical_match.py; Apache-2.0",
        ),
        load=load_evouna,
    ),
    Source(
        name="wmt-side-by-side",
        protocol=Protocol(
            files="sxs_mqm_generalMT2023_ende.3ratingsPerSegment.tsv, ..._zhen..., or both (unpacked)",
            metric="The label is the majority of three translators, each of whom prefers the translation with the "
            "smaller sum of error weights (5 major, 1 minor, 0.1 minor punctuation, 25 non-translation, 0 errors "
            "of the source and creative reinterpretation) or has a tie; without a majority it is a tie; accuracy "
            "over better, worse and tie for each language pair, a failure counting as wrong; beside it agreement "
            "with single translators, and theirs with each other.",
            judge_with="--both-orders",
            paper="Song et al. 2025, Enhancing Human Evaluation in Machine Translation with Comparative Judgement; "
            "google/wmt-mqm-human-evaluation, generalMT2023/, weights of its README.md; Apache-2.0",
            details={"pairs": {languages: [list(pair) for pair in pairs] for languages, pairs in SYSTEM_PAIRS.items()}},
        ),
        load=load_side_by_side,
    ),
    Source(
        name="gsm8k",
        protocol=Protocol(
            files="example_model_solutions.jsonl (answers to judge) or test.jsonl (questions to answer)",
            metric="Each answer is judged by itself as correct or incorrect without seeing the reference; truth is "
            "the final number's, as the file states it; F1 of `correct` per agent, and on right and wrong answers "
            "apart.",
            judge_with="--mode correctness --mode-arg task=number",
            paper="Cobbe et al. 2021; openai/grade-school-math; protocol of Self-Reference, section 4",
        ),
        load=load_gsm8k,
    ),
    Source(
        name="gsm8k-pairs",
        protocol=Protocol(
            files="example_model_solutions.jsonl",
            metric="Each pair of a right and a wrong solution of a question is judged in both orders, without "
            "reference; the right one wins, by the final number.",
            judge_with="--both-orders",
            paper="Cobbe et al. 2021; openai/grade-school-math; pairs of judgelm's own",
        ),
        load=load_gsm8k_pairs,
    ),
    Source(
        name="gsm-symbolic",
        protocol=Protocol(
            files="GSM_p1.jsonl, GSM_p2.jsonl or GSM_symbolic.jsonl (questions to answer)",
            metric="Models answer, and each answer is judged by itself as correct or incorrect without seeing the "
            "reference; truth is the final number's; F1 of `correct` per agent, and on right and wrong answers apart; "
            "the 50 instances of a template are one problem with other numbers.",
            judge_with="--mode correctness --mode-arg task=number",
            paper="Mirzadeh et al. 2025; apple/ml-gsm-symbolic at b6a1625, generated_data/ (CC BY-NC-ND 4.0); protocol "
            "of Self-Reference, section 4",
        ),
        load=load_gsm_symbolic,
    ),
    Source(
        name="mmlu-pro",
        protocol=Protocol(
            files="questions, models' published results (model_outputs_MODEL_5shots.json) or rows of `outputs`, "
            "and a file of pairs where pairs are to be judged",
            metric="An answer is right where the letter extracted from its text (by MMLU-Pro's own rules where the "
            "file says what they find, `l2`, else by ours) is the gold one, and wrong where another or none is, "
            "since the files' predictions hold random guesses; answers are judged by themselves without the "
            "reference, pairs in both orders, where both must name the right answer.",
            judge_with="--mode correctness --mode-arg task=choice (pairs: --mode ssr)",
            paper="Wang et al. 2024; TIGER-AI-Lab/MMLU-Pro; protocols of Self-Reference, section 4, and SSR-Judge, "
            "section 4",
        ),
        load=load_mmlu_pro,
        runs=PublishedRuns(
            files="eval_results/model_outputs_MODEL_5shots.json, or rows of outputs with stored_pred, l1 and l2",
            needs=MMLU_PRO_NEEDS,
            read=read_mmlu_pro,
            paper="Wang et al. 2024; TIGER-AI-Lab/MMLU-Pro, eval_results/ and compute_accuracy.py",
            mode={"name": "correctness", "task": "choice"},
            recognised=lambda row: not row.data.keys().isdisjoint({"pred", "outputs"}),
        ),
    ),
    *(
        Source(
            name=name,
            protocol=Protocol(
                files="the published file, or flat rows with a context and, where they are to be judged, predictions",
                metric="An answer is right where it matches a gold answer exactly or, where it does not, the judge "
                "calls it correct; agreement with people by point-biserial and Pearson correlation, exact match "
                "and F1 beside it.",
                judge_with="--mode qa",
                paper=f"{title}; protocol of QA-Judge, sections 4 and 5",
            ),
            load=partial(load_qa, name),
        )
        for name, title in QA_NAMES.items()
    ),
    Source(
        name="mm-vet",
        protocol=Protocol(
            files="mm-vet.json and a file of answers (id -> text) for each model",
            metric="Each answer gets a grade against the gold answer, where <AND> asks for all elements and <OR> "
            "for any (MM-Vet's own evaluator: 0 to 1 in steps of 0.1); the mean, overall, per capability (a "
            "question counts for each of its capabilities) and per combination of them; images are looked for in "
            "images/ beside the rows.",
            judge_with="--mode multimodal",
            paper="MM-Vet (Yu et al. 2023), yuweihao/MM-Vet, mm-vet_evaluator.py",
        ),
        load=load_mm_vet,
    ),
    Source(
        name="prometheus",
        protocol=Protocol(
            files="vicuna_eval.json, mt_bench_eval.json or another set of grading prompts with gpt4_score",
            metric="Each answer is graded from 1 to 5 by its own rubric; Pearson, Kendall (tau-b) and Spearman "
            "between the grades and the means of GPT-4's three scores, Cohen's kappa with their medians; failures "
            "are left out.",
            judge_with="--card prometheus-2 --mode single",
            paper="Prometheus 2 (Kim et al. 2024), prometheus-eval/prometheus-eval, eval/benchmark/data/ and "
            "eval/utils.py",
        ),
        load=load_prometheus,
    ),
    Source(
        name="fastchat-pair",
        runs=PublishedRuns(
            files="model_judgment/gpt-4_pair.jsonl",
            needs=PAIR_NEEDS,
            read=rows_reader(PAIR_NEEDS, read_fastchat_pair),
            paper="Zheng et al. 2023; lm-sys/FastChat, fastchat/llm_judge; winners of both games name the models",
        ),
    ),
    Source(
        name="fastchat-single",
        runs=PublishedRuns(
            files="model_judgment/gpt-4_single.jsonl",
            needs=SINGLE_NEEDS,
            read=rows_reader(SINGLE_NEEDS, read_fastchat_grade),
            paper="Zheng et al. 2023; lm-sys/FastChat, fastchat/llm_judge",
            mode={"name": "single", "scale": (1, 10)},
        ),
    ),
    Source(
        name="arena-hard",
        runs=PublishedRuns(
            files="model_judgment/JUDGE/MODEL.jsonl",
            needs=ARENA_NEEDS,
            read=rows_reader(ARENA_NEEDS, read_arena_hard),
            paper="Arena-Hard (Li et al. 2024), lmarena/arena-hard-auto, gen_judgment.py and show_result.py",
            unverified="written from the published code alone; no published file was at hand",
        ),
    ),
    Source(
        name="reviews",
        runs=PublishedRuns(
            files="review files of Vicuna or QLoRA; X-vs-Y and Y-vs-X are the two orders of one pair of models",
            needs=(*NEEDS, "text"),
            read=read_review_files,
            paper="lm-sys/FastChat, fastchat/eval/table/review (2023), and artidoro/qlora, eval/ratings-gpt4; "
            "scores are in the order shown",
            mode=MEAN_OF_ORDERS,
        ),
    ),
    Source(
        name="cherry",
        runs=PublishedRuns(
            files="logs/X-VS-Y/DATASET_wrap_reviews_gpt4.json",
            needs=CHERRY_NEEDS,
            read=rows_reader(CHERRY_NEEDS, read_cherry),
            paper="Cherry LLM (Li et al. 2023), tianyi-lab/Cherry_LLM, logs/ and evaluation/generation/eval.py; "
            "scores are in the order shown",
            mode=MEAN_OF_ORDERS,
        ),
    ),
)

LABELS = Source(
    name="labels",
    needs=("id",),
    fields={
        "id": "question_id / id / idx / review_id",
        "label": "winner / score / scores / score_1, score_2 / score_a, score_b / text / score_w_reference / "
        "text_w_reference / annotator1 / preference / label",
    },
    sample=label_alone,
    label=any_label,
    code=(
        FieldCode(fields=("winner", "votes", "label")),
        FieldCode(fields=("annotator*",), values=ZERO_IS_TIE),
    ),
    note="rows hold labels but no answers to judge; give the file with the answers, and this one as labels "
    "(a table of reviews is joined with its answers by `python data_tools/convert.py reviews`)",
)
"""Rows of an id and a label, which name samples of another file."""

PAIR_LABELS = replace(
    LABELS,
    fields={
        "id": "question_id, model_a, model_b / question_id, model_1, model_2",
        "label": "label / g1_winner, g2_winner",
    },
    sample=pair_label_alone,
    label=pair_label,
    code=(FieldCode(fields=("label",)),),
)
"""Labels of pairs named by a question and two models; the answers are in another file."""


SOURCES: Mapping[str, Source] = {source.name: source for source in TABLE}
BENCHMARKS: Mapping[str, Source] = {name: source for name, source in SOURCES.items() if source.protocol is not None}
PUBLISHED: Mapping[str, Source] = {name: source for name, source in SOURCES.items() if source.runs is not None}
_LAYOUTS = tuple(source for source in TABLE if source.needs and source.sample is not None)

_PAIR_LABEL_FIELDS = (
    {"question_id", "model_a", "model_b", "label"},
    {"question_id", "model_1", "model_2", "g1_winner", "g2_winner"},
)
_LABEL_MARKS = frozenset({"winner", "score", "scores", "score_1", "score_a", "score_w_reference", "text_w_reference"})
_MARKS_AMONG_LABELS = frozenset({"text", "annotator1", "preference", "label"})
"""Fields that count as labels only where a file of labels is expected."""


def get_source(name: str) -> Source:
    """The source of that name; `_` and `-` are the same.

    Raises:
        ConfigError: there is none; the message lists the available ones.
    """
    for known, source in SOURCES.items():
        if known.replace("_", "-") == name.replace("_", "-"):
            return source
    raise not_found("source", name, SOURCES)


def get_benchmark(name: str) -> Source:
    """The source of that name, which has a protocol.

    Raises:
        ConfigError: there is none; the message lists the available ones.
    """
    if name in BENCHMARKS:
        return BENCHMARKS[name]
    close = difflib.get_close_matches(name, BENCHMARKS, n=1)
    hint = f"; did you mean {close[0]}?" if close else ";"
    raise ConfigError(f"benchmark {name!r} not found{hint} Available: {', '.join(BENCHMARKS)}")


def get_published(name: str) -> Source:
    """The source of that name, of which judges' outputs are published.

    Raises:
        ConfigError: there is none; the message lists the available ones.
    """
    if name not in PUBLISHED:
        raise not_found("format", name, PUBLISHED)
    return PUBLISHED[name]


def recognise(row: Row, *, label_rows: bool = False) -> Source:
    """The source of a file, from the field names of its first good row; its `fields` narrowed to those of the row.

    Args:
        row: the file's first good row.
        label_rows: whether a file of labels is expected.

    Raises:
        InputError: no source matches; names the fields, those that each layout needs, and likely misspellings.
    """
    names = row.data.keys()
    for candidate in _LAYOUTS:
        if names >= set(candidate.needs):
            return candidate.narrowed(row)
    if "question" in names and ("answers" in names or "answer" in names):
        return SOURCES["plain"].narrowed(row)
    if any(needs <= names for needs in _PAIR_LABEL_FIELDS):
        return PAIR_LABELS.narrowed(row)
    marks = _LABEL_MARKS | _MARKS_AMONG_LABELS if label_rows else _LABEL_MARKS
    if not marks.isdisjoint(names) and any(name in names for name in ID_FIELDS):
        return LABELS.narrowed(row)
    raise _unknown_fields(row)


def _unknown_fields(row: Row) -> InputError:
    fields = list(row.data)
    nearest = max(_LAYOUTS, key=lambda known: _likeness(known, fields))
    missing = [need for need in nearest.needs if need not in row.data]
    guesses = [f'"{near}" looks like "{need}"' for need in missing if (near := _near(need, fields))]
    known = "; ".join(f"{known.name} ({', '.join(known.needs)})" for known in _LAYOUTS)
    hint = f"; {', '.join(guesses)}" if guesses else ""
    near = (
        f" Nearest is {nearest.name}, without {', '.join(missing)}."
        if len(missing) < len(nearest.needs) or hint
        else ""
    )
    return row_error(
        row,
        f"fields not recognised: {', '.join(fields) or 'none'}{hint}.{near} Name the columns with --column, such as "
        "--column question=prompt, or call them question, answer_1, answer_2 (in a table by its first line). Layouts "
        f"known and what each needs: {known}; or an id with a winner or score, as labels",
    )


def _likeness(known: Source, fields: list[str]) -> float:
    """Similarity of the fields to those that a layout needs, from 0 to 1."""
    matches = [(need, near) for need in known.needs if (near := _near(need, fields))]
    alike = (difflib.SequenceMatcher(None, need, _folded(near)).ratio() for need, near in matches)
    return sum(alike) / len(known.needs)


def _near(need: str, fields: list[str]) -> str | None:
    """The field that is spelt most like what is needed: `Answer 1` like `answer_1`."""
    folded = {_folded(field): field for field in fields}
    close = difflib.get_close_matches(need, folded, n=1, cutoff=0.75)
    return folded[close[0]] if close else None


def _folded(field: str) -> str:
    return "_".join(field.lower().split())


def recognise_published(files: Sequence[str]) -> Source:
    """The source of files of published judgments.

    Raises:
        InputError: a file cannot be read, or its fields fit no source.
        ConfigError: the files are of different sources.
    """
    if are_tables(files):
        return PUBLISHED["alpaca-eval"]
    sources = {path: _recognise_published(path) for path in files}
    if len({source.name for source in sources.values()}) > 1:
        listed = ", ".join(f"{path} is {source.name}" for path, source in sources.items())
        raise ConfigError(f"files of different formats: {listed}; import them one by one")
    return next(iter(sources.values()))


def _recognise_published(path: str) -> Source:
    row = first_row(path)
    if row is None:
        raise InputError(f"{path}: no row can be read; give a file of published judgments")
    matches = [
        (len(runs.needs), source)
        for source in PUBLISHED.values()
        if (runs := source.runs) is not None and row.data.keys() >= set(runs.needs) and runs.recognised(row)
    ]
    if not matches:
        fields = ", ".join(row.data) or "none"
        raise InputError(
            f"{path}: not recognised by its fields ({fields}); name its format with --format: {', '.join(PUBLISHED)}"
        )
    return max(matches, key=lambda match: match[0])[1]
