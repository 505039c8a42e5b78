"""Captured prompts are of one dialect and split to the byte, and so are fresh texts in them."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judgelm.dialects.catalog import DIALECTS
from tests.support.captures import last_turn, recognised, requests

# dialect, kind of verdict, scale: the folders of captured requests
CLIENTS = {
    ("alpaca-eval-lmsys", "pair", None): "alpaca_eval__lmsys_gpt4",
    ("alpaca-eval-ranking", "pair", None): "alpaca_eval__alpaca_eval_gpt4",
    ("alpaca-eval-function", "pair", None): "alpaca_eval__alpaca_eval_gpt4_turbo_fn "
    "alpaca_eval__alpaca_eval_cot_gpt4_turbo_fn",
    ("alpaca-eval-identifier", "pair", None): "alpaca_eval__alpaca_eval_clf_gpt4_turbo "
    "alpaca_eval__alpaca_eval_clf_cot_gpt4_turbo alpaca_eval__weighted_alpaca_eval_gpt4_turbo "
    "alpaca_eval__weighted_alpaca_eval_cot_gpt4_turbo",
    ("arena-hard", "pair", None): "arena_hard_v01 arena_hard_v2",
    ("deepeval-geval", "grade", (0.0, 10.0)): "deepeval_geval_localmodel deepeval_geval_openai",
    ("fastchat-pair", "pair", None): "fastchat_pair",
    ("fastchat-pair-math", "pair", None): "fastchat_pair_math",
    ("fastchat-pair-mt", "pair", None): "fastchat_pair_mt",
    ("fastchat-pair-math-mt", "pair", None): "fastchat_pair_math_mt",
    ("fastchat-single", "grade", (1.0, 10.0)): "fastchat_single",
    ("fastchat-single-math", "grade", (1.0, 10.0)): "fastchat_single_math",
    ("fastchat-single-mt", "grade", (1.0, 10.0)): "fastchat_single_mt",
    ("fastchat-single-math-mt", "grade", (1.0, 10.0)): "fastchat_single_math_mt",
    ("flowjudge", "label", (0.0, 1.0)): "flowjudge_response_correctness_binary_prompt_only",
    ("flowjudge", "grade", (1.0, 5.0)): "flowjudge_response_faithfulness_5point_prompt_only "
    "lighteval_mtbench_flowjudge_openai",
    ("geval", "grade", (1.0, 5.0)): "geval_original_coh geval_original_con geval_original_rel",
    ("geval", "grade", (1.0, 3.0)): "geval_original_flu",
    ("inspect-model-graded-fact", "label", None): "inspect_model_graded_fact",
    ("inspect-model-graded-qa", "label", None): "inspect_model_graded_qa inspect_model_graded_qa_partial",
    ("judgelm", "pair", None): "judgelm_prompt_only",
    ("judgelm-reference", "pair", None): "judgelm_ref_prompt_only",
    ("llmbar-choice", "pair", None): "llmbar__CoT llmbar__Metrics llmbar__Metrics_Reference llmbar__Reference "
    "llmbar__Swap llmbar__Swap_CoT llmbar__Vanilla llmbar__Vanilla_1shot llmbar__Vanilla_NoRules",
    ("llmbar-rating", "grade", (0.0, 9.0)): "llmbar__Rating llmbar__Rating_Metrics_Reference llmbar__Rating_NoRules",
    ("openevals", "label", None): "openevals_bool_langchain openevals_bool_openaiclient openevals_noreason_langchain",
    ("openevals", "grade", (0.0, 1.0)): "openevals_choices_langchain openevals_continuous_langchain",
    ("pandalm", "pair", None): "pandalm_prompt_only",
    ("prometheus-absolute", "grade", (1.0, 5.0)): "prometheus_absolute prometheus_absolute_ref",
    ("prometheus-relative", "pair", None): "prometheus_relative prometheus_relative_ref rewardbench_v1_prometheus",
    ("promptfoo-closedqa", "label", None): "promptfoo_closedqa",
    ("promptfoo-factuality", "label", None): "promptfoo_factuality",
    ("promptfoo-g-eval", "grade", (0, 10)): "promptfoo_g_eval",
    ("promptfoo-llm-rubric", "label", None): "promptfoo_llm_rubric",
    ("promptfoo-select-best", "pair", None): "promptfoo_select_best",
    ("ragas-aspect-critic", "label", None): "ragas_aspect_critic_langchain",
    ("ragas-discrete", "label", None): "ragas_discrete_instructor",
    ("ragas-rubrics", "grade", (1.0, 5.0)): "ragas_rubrics_langchain",
    ("ragas-simple-criteria", "grade", (0.0, 5.0)): "ragas_simple_criteria_langchain",
    ("rewardbench-atla", "pair", None): "rewardbench_v1_atla",
    ("rewardbench-con-j", "pair", None): "rewardbench_v1_conj",
    ("rewardbench-four", "choice", None): "rewardbench_v2_four",
    ("rewardbench-offsetbias", "pair", None): "rewardbench_v1_offsetbias",
    ("rewardbench-pair", "pair", None): "rewardbench_v1_pair",
    ("rewardbench-pair-multi-turn", "pair", None): "rewardbench_v1_pair_mt",
    ("rewardbench-ratings", "grade", (1.0, 10.0)): "rewardbench_v1_ratings rewardbench_v2_ratings "
    "rewardbench_v2_ratings_ties",
    ("rewardbench-rise", "pair", None): "rewardbench_v1_rise",
    ("simpleqa", "label", None): "lighteval_simpleqa_litellm lighteval_simpleqa_openai",
    ("vicuna-review", "pair", None): "vicuna_review",
}
FOLDERS = {folder: task for task, folders in CLIENTS.items() for folder in folders.split()}
BATCH = "alpaca_eval__alpaca_farm_greedy_gpt4"
NO_QUESTION = ("geval_original_flu", "promptfoo_llm_rubric", "promptfoo_select_best")
"""Folders whose prompts do not show the question."""

PIECES = [
    "a", "Z", " ", "\n", "\r\n", "\u2028", "\t", "#", "{", "}", '"', '"""', "'", "`", "```", "<", "1 2", "😀", "é",
    "[[A]]", "{question}", "Output (a)", "回答2：", "\n回答B：", "</output>", "<response>\n", "\n</response>",
    "\n</query>", "\n\n# Output (b):\n", "\n# Output (b):\n", "### Response 2:\n", "\n\n###Response B:\n",
    "\n\n[Response]\n", "[The End of Assistant A's Answer]", "\n\n[The Start of Assistant B's Answer]\n",
    "\n\n### User:\n", '"""\n    },\n', "\n***\n[Criterion]: ", "</submitted_answer>", "\n</Output>\n<Rubric>\n",
    "\n</question>\n\n<expert_answer>\n", "\n\n**Reply**\n", '\n</Text>\n\n<Text index="1">\n',
    "\n</output>\n\n", "\n</input>\n\n<output>\n", "Use this:\n\n<reference_outputs>\n", "\n</reference_outputs>",
    "\n\nTest Case:\n", " \n\nActual Output:\n", " \n\nExpected Output:\n", "\n\nParameters:\nInput", "\n[END DATA]",
    "[Reference Answer]\n", "\nOutput: ", "\nNow perform the same with the following input\ninput: ",
]  # fmt: skip
TEXTS = st.lists(st.sampled_from(PIECES), max_size=8).map("".join)


def texts_shown(folder, item):
    """(question, answers, reference) as the client puts them into the prompt."""
    question, answers, reference = item.get("source", item["question"]), item["answers"], item.get("reference")
    if folder in NO_QUESTION:
        question = ""
    if folder.startswith("promptfoo"):  # it cuts a variable's last line feed
        question = question.removesuffix("\n")
    if folder.startswith("pandalm"):
        answers = [answer.strip() for answer in answers]
    if folder.startswith("inspect"):  # it takes its own delimiters out of the answer
        answers = [re.sub(r"\[END DATA\]", "[END-DATA]", answer) for answer in answers]
    if folder.startswith("llmbar"):  # the reference output is the reply to a request before
        reference = item["aux_replies"][-1] if "Reference" in folder else None
    return question, answers, None if folder.startswith("geval") else reference


def judged(shared_data, folder):
    """(item, request) of the judging requests."""
    for item, request in requests(shared_data, folder):
        if not item.get("aux"):
            yield last_turn(item), request


def test_every_captured_folder_is_in_the_table(shared_data):
    folders = {path.parent.name for path in shared_data.glob("dialects/*/requests.jsonl")}
    assert folders == {*FOLDERS, BATCH}
    names = [dialect.name for dialect in DIALECTS]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("folder", FOLDERS)
def test_each_captured_prompt_is_of_its_dialect_alone_and_split_to_the_byte(shared_data, folder):
    for item, request in judged(shared_data, folder):
        [(_, task)] = recognised(request)
        assert (task.dialect, task.kind, task.scale) == FOLDERS[folder]
        sample = task.sample
        assert (sample.question, [*sample.answers], sample.reference) == texts_shown(folder, item)


@pytest.mark.parametrize("folder", FOLDERS)
@given(data=st.data())
def test_fresh_texts_come_back_or_the_split_is_doubted(shared_data, refilled, folder, data):
    item, _ = next(judged(shared_data, folder))
    question, answers, reference = texts_shown(folder, item)
    question, *answers = (data.draw(TEXTS) for _ in [question, *answers])
    reference = data.draw(TEXTS) if reference is not None and not folder.startswith("llmbar") else None
    shows_question = folder not in NO_QUESTION
    question = question if shows_question else ""
    request = refilled(folder, question=question if shows_question else None, answers=answers, reference=reference)
    [(_, task)] = recognised(request)
    assert task.dialect == FOLDERS[folder][0]
    found = (task.sample.question, [*task.sample.answers], task.sample.reference)
    assert task.doubt or found[:2] == (question, answers)
    assert task.doubt or reference is None or found[2] == reference


def test_the_turns_of_dialogues_are_found(shared_data):
    for folder in [folder for folder in FOLDERS if folder.endswith("_mt")]:
        for item, request in requests(shared_data, folder):
            [(_, task)] = recognised(request)
            assert task.sample.metadata["turns"] == [
                {
                    "question": turn["question"],
                    "answers": turn.get("answers") or [turn["answer"]],
                    "reference": turn["reference"] if folder.startswith("fastchat") else None,
                }
                for turn in item["turns"]
            ]


def test_a_batch_is_taken_apart_into_its_examples(shared_data):
    [(item, request)] = requests(shared_data, BATCH)
    [(_, task)] = recognised(request)
    assert task.dialect == "alpaca-eval-batch"
    batch = [(sample.question, list(sample.answers)) for sample in task.facts["batch"]]
    assert batch == [(example["question"], example["answers"]) for example in item["batch"]]


@pytest.mark.parametrize(
    ("start", "dialect"),
    [
        ("llmbar__", "llmbar-preparation"),
        ("deepeval_", "deepeval-geval-steps"),
        ("promptfoo_", "promptfoo-g-eval-steps"),
    ],
)
def test_requests_before_the_judging_one_are_prepared(shared_data, start, dialect):
    found = [
        [(task.dialect, task.kind) for _, task in recognised(request)]
        for folder in FOLDERS
        if folder.startswith(start)
        for item, request in requests(shared_data, folder)
        if item.get("aux")
    ]
    assert found
    assert all(tasks == [(dialect, "prepare")] for tasks in found)


@pytest.mark.parametrize(
    "folder",
    [
        *("prometheus_absolute_ref", "prometheus_relative", "flowjudge_response_correctness_binary_prompt_only"),
        *("promptfoo_closedqa", "promptfoo_g_eval", "promptfoo_llm_rubric", "promptfoo_select_best"),
    ],
)
def test_the_rubric_is_the_criterion(shared_data, folder):
    for item, request in judged(shared_data, folder):
        [(_, task)] = recognised(request)
        assert str(task.sample.metadata["criterion"]).startswith(item.get("criteria") or item["rubric"])


def test_inputs_beside_question_and_reference_are_kept(shared_data):
    for item, request in judged(shared_data, "pandalm_prompt_only"):
        [(_, task)] = recognised(request)
        assert task.sample.metadata.get("input", "") == item["input"]
