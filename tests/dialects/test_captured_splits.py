"""Captured prompts are of one dialect and split to the byte, and so are fresh texts in them."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judgelm.dialects.catalog import DIALECTS
from tests.dialects.client_parsers import CLIENTS
from tests.support.captures import last_turn, recognised, requests

KINDS = {
    ("pair", None): "alpaca-eval-lmsys alpaca-eval-ranking alpaca-eval-function alpaca-eval-identifier arena-hard "
    "fastchat-pair fastchat-pair-math fastchat-pair-mt fastchat-pair-math-mt judgelm judgelm-reference llmbar-choice "
    "pandalm prometheus-relative promptfoo-select-best rewardbench-atla rewardbench-con-j rewardbench-offsetbias "
    "rewardbench-pair rewardbench-pair-multi-turn rewardbench-rise vicuna-review",
    ("choice", None): "rewardbench-four",
    ("label", None): "inspect-model-graded-fact inspect-model-graded-qa openevals promptfoo-closedqa "
    "promptfoo-factuality promptfoo-llm-rubric ragas-aspect-critic ragas-discrete simpleqa",
    ("grade", (0.0, 5.0)): "ragas-simple-criteria",
    ("grade", (0.0, 9.0)): "llmbar-rating",
    ("grade", (0.0, 10.0)): "deepeval-geval promptfoo-g-eval",
    ("grade", (1.0, 5.0)): "flowjudge geval prometheus-absolute ragas-rubrics",
    ("grade", (1.0, 10.0)): "fastchat-single fastchat-single-math fastchat-single-mt fastchat-single-math-mt "
    "rewardbench-ratings",
}
"""The dialects by kind of verdict and scale."""
OTHER_SCALES = {
    "flowjudge_response_correctness_binary_prompt_only": ("label", (0.0, 1.0)),
    "geval_original_flu": ("grade", (1.0, 3.0)),
    "openevals_choices_langchain": ("grade", (0.0, 1.0)),
    "openevals_continuous_langchain": ("grade", (0.0, 1.0)),
}
WITHOUT_REPLIES = {
    "llmbar-choice": "Metrics Metrics_Reference Reference Swap Swap_CoT Vanilla_1shot Vanilla_NoRules",
    "llmbar-rating": "Rating Rating_Metrics_Reference Rating_NoRules",
}
BATCH = "alpaca_eval__alpaca_farm_greedy_gpt4"
DIALECT_OF = {
    folder: client.dialect
    for folder, client in CLIENTS.items()
    if not folder.startswith(("judgebench_", "autoj_")) and folder != BATCH
} | {f"llmbar__{strategy}": dialect for dialect, names in WITHOUT_REPLIES.items() for strategy in names.split()}
KIND_OF = {dialect: kind for kind, dialects in KINDS.items() for dialect in dialects.split()}
FOLDERS = {folder: (name, *OTHER_SCALES.get(folder, KIND_OF[name])) for folder, name in DIALECT_OF.items()}
WITH_CRITERION = (
    "prometheus_absolute_ref", "prometheus_relative", "flowjudge_response_correctness_binary_prompt_only",
    "promptfoo_closedqa", "promptfoo_g_eval", "promptfoo_llm_rubric", "promptfoo_select_best",
)  # fmt: skip
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
    assert len({dialect.name for dialect in DIALECTS}) == len(DIALECTS)


@pytest.mark.parametrize("folder", FOLDERS)
def test_each_captured_prompt_is_of_its_dialect_alone_and_split_to_the_byte(shared_data, folder):
    for item, request in judged(shared_data, folder):
        [(_, task)] = recognised(request)
        assert (task.dialect, task.kind, task.scale) == FOLDERS[folder]
        sample = task.sample
        assert (sample.question, [*sample.answers], sample.reference) == texts_shown(folder, item)
        if folder in WITH_CRITERION:
            assert str(sample.metadata["criterion"]).startswith(item.get("criteria") or item["rubric"])
        if folder.startswith("pandalm"):
            assert sample.metadata.get("input", "") == item["input"]
        if folder.endswith("_mt"):
            referenced = folder.startswith("fastchat")
            assert [(turn["question"], turn["answers"], turn["reference"]) for turn in sample.metadata["turns"]] == [
                (turn["question"], turn.get("answers") or [turn["answer"]], turn["reference"] if referenced else None)
                for turn in item["turns"]
            ]


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
    assert task.doubt or (task.sample.question, [*task.sample.answers]) == (question, answers)
    assert task.doubt or reference is None or task.sample.reference == reference


def test_a_batch_is_taken_apart_into_its_examples(shared_data):
    [(item, request)] = requests(shared_data, BATCH)
    [(_, task)] = recognised(request)
    assert task.dialect == "alpaca-eval-batch"
    batch = [(sample.question, list(sample.answers)) for sample in task.facts["batch"]]
    assert batch == [(example["question"], example["answers"]) for example in item["batch"]]


@pytest.mark.parametrize(
    ("start", "dialect"),
    [
        ("llmbar_", "llmbar-preparation"),
        ("deepeval_", "deepeval-geval-steps"),
        ("promptfoo_", "promptfoo-g-eval-steps"),
    ],
)
def test_requests_before_the_judging_one_are_prepared(shared_data, start, dialect):
    preparing = [
        request
        for folder in FOLDERS
        if folder.startswith(start)
        for item, request in requests(shared_data, folder)
        if item.get("aux")
    ]
    assert preparing
    for request in preparing:
        [(_, task)] = recognised(request)
        assert (task.dialect, task.kind) == (dialect, "prepare")
