"""Captured prompts are split to the byte, and so are fresh texts in them."""

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from judgelm.dialects.catalog import DIALECTS
from tests.support.captures import requests

FOLDERS = {
    "alpaca_eval__lmsys_gpt4": "alpaca-eval-lmsys",
    "alpaca_eval__alpaca_eval_gpt4": "alpaca-eval-ranking",
    "alpaca_eval__alpaca_eval_gpt4_turbo_fn": "alpaca-eval-function",
    "alpaca_eval__alpaca_eval_cot_gpt4_turbo_fn": "alpaca-eval-function",
    "alpaca_eval__alpaca_eval_clf_gpt4_turbo": "alpaca-eval-identifier",
    "alpaca_eval__alpaca_eval_clf_cot_gpt4_turbo": "alpaca-eval-identifier",
    "alpaca_eval__weighted_alpaca_eval_gpt4_turbo": "alpaca-eval-identifier",
    "alpaca_eval__weighted_alpaca_eval_cot_gpt4_turbo": "alpaca-eval-identifier",
    "flowjudge_response_correctness_binary_prompt_only": "flowjudge",
    "flowjudge_response_faithfulness_5point_prompt_only": "flowjudge",
    "lighteval_mtbench_flowjudge_openai": "flowjudge",
    "llmbar__CoT": "llmbar-choice",
    "llmbar__Metrics": "llmbar-choice",
    "llmbar__Metrics_Reference": "llmbar-choice",
    "llmbar__Rating": "llmbar-rating",
    "llmbar__Rating_Metrics_Reference": "llmbar-rating",
    "llmbar__Rating_NoRules": "llmbar-rating",
    "llmbar__Reference": "llmbar-choice",
    "llmbar__Swap": "llmbar-choice",
    "llmbar__Swap_CoT": "llmbar-choice",
    "llmbar__Vanilla": "llmbar-choice",
    "llmbar__Vanilla_1shot": "llmbar-choice",
    "llmbar__Vanilla_NoRules": "llmbar-choice",
    "pandalm_prompt_only": "pandalm",
    "prometheus_absolute": "prometheus-absolute",
    "prometheus_absolute_ref": "prometheus-absolute",
    "prometheus_relative": "prometheus-relative",
    "prometheus_relative_ref": "prometheus-relative",
    "rewardbench_v1_atla": "rewardbench-atla",
    "rewardbench_v1_conj": "rewardbench-con-j",
    "rewardbench_v1_offsetbias": "rewardbench-offsetbias",
    "rewardbench_v1_pair": "rewardbench-pair",
    "rewardbench_v1_pair_mt": "rewardbench-pair-multi-turn",
    "rewardbench_v1_prometheus": "prometheus-relative",
    "rewardbench_v1_ratings": "rewardbench-ratings",
    "rewardbench_v1_rise": "rewardbench-rise",
    "rewardbench_v2_four": "rewardbench-four",
    "rewardbench_v2_ratings": "rewardbench-ratings",
    "rewardbench_v2_ratings_ties": "rewardbench-ratings",
    "arena_hard_v01": "arena-hard",
    "arena_hard_v2": "arena-hard",
    "deepeval_geval_localmodel": "deepeval-geval",
    "deepeval_geval_openai": "deepeval-geval",
    "geval_original_coh": "geval",
    "geval_original_con": "geval",
    "geval_original_rel": "geval",
    "judgelm_prompt_only": "judgelm",
    "judgelm_ref_prompt_only": "judgelm-reference",
    "lighteval_simpleqa_litellm": "simpleqa",
    "lighteval_simpleqa_openai": "simpleqa",
    "openevals_bool_langchain": "openevals",
    "openevals_bool_openaiclient": "openevals",
    "openevals_choices_langchain": "openevals",
    "openevals_continuous_langchain": "openevals",
    "openevals_noreason_langchain": "openevals",
    "ragas_aspect_critic_langchain": "ragas-aspect-critic",
    "ragas_discrete_instructor": "ragas-discrete",
    "ragas_rubrics_langchain": "ragas-rubrics",
    "ragas_simple_criteria_langchain": "ragas-simple-criteria",
    "vicuna_review": "vicuna-review",
}
ESCAPED = ("ragas_", "deepeval_", "openevals_", "geval_", "lighteval_simpleqa")
"""Starts of folders whose texts stand escaped in the prompt, or more than once."""

# what is wanted, and on which scale; elsewhere the better one of a pair
WANTED = {
    "ragas_aspect_critic_langchain": ("label", None),
    "ragas_discrete_instructor": ("label", None),
    "ragas_rubrics_langchain": ("grade", (1.0, 5.0)),
    "ragas_simple_criteria_langchain": ("grade", (0.0, 5.0)),
    "flowjudge_response_correctness_binary_prompt_only": ("label", (0.0, 1.0)),
    "flowjudge_response_faithfulness_5point_prompt_only": ("grade", (1.0, 5.0)),
    "lighteval_mtbench_flowjudge_openai": ("grade", (1.0, 5.0)),
    "rewardbench_v2_four": ("choice", None),
} | {
    folder: ("grade", scale)
    for start, scale in {
        "llmbar__Rating": (0.0, 9.0), "prometheus_absolute": (1.0, 5.0), "geval_": (1.0, 5.0), "deepeval_": (0.0, 10.0),
        "openevals_c": (0.0, 1.0),
    }.items()
    for folder in FOLDERS
    if folder.startswith(start)
} | {folder: ("grade", (1.0, 10.0)) for folder in FOLDERS if "_ratings" in folder} | {
    folder: ("label", None)
    for folder in FOLDERS
    if folder.startswith(("lighteval_simpleqa", "openevals_bool", "openevals_noreason"))
}  # fmt: skip
PIECES = [
    "a", "Z", " ", "\n", "\r\n", "\u2028", "\t", "#", "{", "}", '"', '"""', "'", "`", "```", "<", "1 2", "😀", "é",
    "[[A]]", "{question}", "Output (a)", "回答2：", "\n回答B：", "</output>", "<response>\n", "\n</response>",
    "\n</query>", "\n\n# Output (b):\n", "\n# Output (b):\n", "### Response 2:\n", "\n\n###Response B:\n",
    "\n\n[Response]\n", "[The End of Assistant A's Answer]", "\n\n[The Start of Assistant B's Answer]\n",
    "\n\n### User:\n", '"""\n    },\n',
]  # fmt: skip
TEXTS = st.lists(st.sampled_from(PIECES), max_size=8).map("".join)


def recognised(asked):
    return [case for dialect in DIALECTS if (case := dialect.recognise(asked)) is not None]


def refilled(asked, texts):
    """The request with other texts in the places of those that it was made of."""
    messages = []
    for message in asked.messages:
        text = message.text
        for place, old in enumerate(texts):
            text = text.replace(old, f"\0{place}\0")
        for place, new in enumerate(texts.values()):
            text = text.replace(f"\0{place}\0", new)
        messages.append(replace(message, text=text))
    return replace(asked, messages=tuple(messages))


def expected_reference(folder, item):
    """LLMBar's reference output is the reply to a request before; the item's own is not in the prompt."""
    if folder.startswith("llmbar"):
        return item["aux_replies"][-1] if "Reference" in folder else None
    return item.get("reference")


def judged(shared_data, folder):
    return [(item, asked) for item, asked in requests(shared_data, folder) if not item.get("aux")]


@pytest.mark.parametrize("folder", FOLDERS)
def test_each_captured_prompt_is_of_its_dialect_and_split_to_the_byte(shared_data, folder):
    for item, asked in judged(shared_data, folder):
        [case] = recognised(asked)
        item |= item.get("turns", [{}])[-1]  # of a dialogue the last turn is judged
        assert (case.kind, case.scale) == WANTED.get(folder, ("pair", None))
        # PandaLM's client strips the answers before it writes the prompt
        answers = [one.strip() for one in item["answers"]] if folder.startswith("pandalm") else item["answers"]
        assert (case.dialect, case.sample.question, list(case.sample.answers), case.sample.reference) == (
            FOLDERS[folder],
            item["question"],
            answers,
            expected_reference(folder, item),
        )


@pytest.mark.parametrize("folder", [folder for folder in FOLDERS if not folder.startswith(ESCAPED)])
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_fresh_texts_come_back_or_the_split_is_doubted(shared_data, folder, data):
    item, asked = next(one for one in judged(shared_data, folder) if one[0]["id"] == "plain")
    item |= item.get("turns", [{}])[-1]
    old = [item["question"], *item["answers"]]
    fresh = data.draw(st.tuples(*[TEXTS] * len(old)))
    found = recognised(refilled(asked, dict(zip(old, fresh, strict=True))))
    assert [one.dialect for one in found] == [FOLDERS[folder]]
    if not found[0].doubt:
        assert (found[0].sample.question, *found[0].sample.answers) == fresh


def test_the_turns_of_two_talks_are_found(shared_data):
    for item, asked in judged(shared_data, "rewardbench_v1_pair_mt"):
        [case] = recognised(asked)
        assert case.sample.metadata["turns"] == [
            {"question": turn["question"], "answers": turn["answers"], "reference": None} for turn in item["turns"]
        ]


def test_a_batch_is_taken_apart_into_its_examples(shared_data):
    [(item, asked)] = judged(shared_data, "alpaca_eval__alpaca_farm_greedy_gpt4")
    [case] = recognised(asked)
    assert case.dialect == "alpaca-eval-batch"
    batch = [(one.question, list(one.answers)) for one in case.facts["batch"]]
    assert batch == [(one["question"], one["answers"]) for one in item["batch"]]


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(fresh=st.tuples(TEXTS, TEXTS, TEXTS))
def test_fresh_texts_in_a_batch_come_back_or_the_split_is_doubted(shared_data, fresh):
    [(item, asked)] = judged(shared_data, "alpaca_eval__alpaca_farm_greedy_gpt4")
    old = item["batch"][1]
    [case] = recognised(refilled(asked, dict(zip([old["question"], *old["answers"]], fresh, strict=True))))
    if not case.doubt:
        assert (case.facts["batch"][1].question, *case.facts["batch"][1].answers) == fresh


@pytest.mark.parametrize("folder", ["llmbar__Metrics", "llmbar__Reference", "llmbar__Rating_Metrics_Reference"])
def test_requests_before_the_judging_one_are_prepared(shared_data, folder):
    found = [recognised(asked) for item, asked in requests(shared_data, folder) if item.get("aux")]
    assert found
    assert {(len(cases), cases[0].dialect, cases[0].kind) for cases in found} == {(1, "llmbar-preparation", "prepare")}


@pytest.mark.parametrize(
    "folder", ["prometheus_absolute_ref", "prometheus_relative", "flowjudge_response_correctness_binary_prompt_only"]
)
def test_the_rubric_is_the_criterion(shared_data, folder):
    for item, asked in judged(shared_data, folder):
        [case] = recognised(asked)
        wanted = item.get("criteria", item["rubric"])
        assert str(case.sample.metadata["criterion"]).startswith(wanted)


def test_inputs_beside_question_and_reference_are_kept(shared_data):
    for item, asked in judged(shared_data, "pandalm_prompt_only"):
        [case] = recognised(asked)
        assert case.sample.metadata.get("input", "") == item["input"]
