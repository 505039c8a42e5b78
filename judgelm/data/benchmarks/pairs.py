"""Pairs of answers with one label each: PandaLM's test set, LLMBar, JudgeBench, Auto-J's pairwise test set."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from judgelm.data.benchmarks.base import Benchmark, Entry, Shape, choice_field, convert_file, plain_row, row_loader
from judgelm.data.formats.labels import llmbar_label, pandalm_label
from judgelm.data.formats.samples import llmbar_sample, pandalm_sample
from judgelm.data.readers.fields import optional_text, row_error, row_id, text_field
from judgelm.data.readers.rejects import OnReject
from judgelm.data.readers.rows import Row
from judgelm.records import Label, Sample, Winner

_PANDALM = Shape(
    name="PandaLM's test set",
    needs=("instruction", "response1", "response2", "annotator1", "annotator2", "annotator3"),
)


def _pandalm_entry(row: Row, row_number: int) -> Entry:
    """Instruction and input stay apart in the metadata, since PandaLM's own prompt shows them apart."""
    sample = pandalm_sample(row)
    context = optional_text(row, "input")
    if context:
        parts = {"instruction": text_field(row, "instruction", "instruction"), "input": context}
        sample = replace(sample, metadata={**sample.metadata, **parts})
    return Entry(plain_row(sample, pandalm_label(row, False)))


_LLMBAR = Shape(name="LLMBar", needs=("input", "output_1", "output_2", "label"))


def _llmbar(files: Sequence[str], on_reject: OnReject) -> Iterator[Entry]:
    """The set of each file is the name of its folder, as published."""
    for path in files:
        subset = Path(path).resolve().parent.name
        yield from convert_file(path, _LLMBAR, partial(_llmbar_entry, subset), on_reject)


def _llmbar_entry(subset: str, row: Row, row_number: int) -> Entry:
    label = llmbar_label(row, False)
    if label is None or label.winner == "tie":
        raise row_error(row, "LLMBar's labels are 1 or 2, and this row has neither; leave the row out")
    sample = replace(llmbar_sample(row), id=f"{subset}-{row_number}", category=subset)
    return Entry(plain_row(sample, label))


_JUDGEBENCH_LABELS: Mapping[object, Winner] = {"A>B": 1, "B>A": 2}
_JUDGEBENCH_CATEGORIES = {
    "mmlu-pro": "knowledge",
    "livebench-reasoning": "reasoning",
    "livebench-math": "math",
    "livecodebench": "coding",
}
_JUDGEBENCH = Shape(name="JudgeBench", needs=("pair_id", "source", "question", "response_A", "response_B", "label"))


def _judgebench_entry(row: Row, row_number: int) -> Entry:
    needs = ", ".join(_JUDGEBENCH.needs)
    winner = choice_field(row, "label", _JUDGEBENCH_LABELS)
    source = text_field(row, "source", needs)
    category = next((name for start, name in _JUDGEBENCH_CATEGORIES.items() if source.startswith(start)), None)
    if category is None:
        known = ", ".join(_JUDGEBENCH_CATEGORIES)
        raise row_error(row, f'field "source": "{source}" begins with none of {known}; correct the row')
    model = optional_text(row, "response_model")
    sample = Sample(
        id=text_field(row, "pair_id", needs),
        question=text_field(row, "question", needs),
        answers=(text_field(row, "response_A", needs), text_field(row, "response_B", needs)),
        answer_models=() if model is None else (model, model),
        category=category,
        metadata={"source": source, "original_id": row_id(row, ("original_id",))},
    )
    return Entry(plain_row(sample, Label(sample_id="", winner=winner)))


AUTO_J_GROUPS: Mapping[str, tuple[str, ...]] = {
    "Summarization": ("post_summarization", "text_summarization", "note_summarization"),
    "Exam Questions": ("math_reasoning", "solving_exam_question_with_math", "solving_exam_question_without_math"),
    "Code": (
        *("code_simplification", "code_generation", "explaining_code", "code_correction_rewriting"),
        "code_to_code_translation",
    ),
    "Rewriting": (
        *("text_simplification", "language_polishing", "instructional_rewriting", "text_correction", "paraphrasing"),
    ),
    "Creative Writing": (
        *("writing_song_lyrics", "writing_social_media_post", "writing_blog_post", "writing_personal_essay"),
        *("creative_writing", "writing_advertisement", "writing_marketing_materials", "writing_presentation_script"),
        "counterfactual",
    ),
    "Functional Writing": (
        *("writing_product_description", "writing_job_application", "writing_news_article", "writing_biography"),
        *("writing_email", "writing_legal_document", "writing_technical_document", "writing_scientific_paper"),
        *("functional_writing", "writing_cooking_recipe"),
    ),
    "General Communication": (
        *("asking_how_to_question", "open_question", "analyzing_general", "explaining_general", "seeking_advice"),
        *("recommendation", "value_judgement", "verifying_fact", "chitchat", "roleplay", "planning", "brainstorming"),
    ),
    "NLP Tasks": (
        *("ranking", "text_to_text_translation", "data_analysis", "classification_identification", "title_generation"),
        *("question_generation", "reading_comprehension", "keywords_extraction", "information_extraction"),
        *("topic_modeling", "others"),
    ),
}
"""Auto-J's 58 scenarios by the 8 groups in which its makers report them."""

_AUTO_J_LABELS: Mapping[object, Winner] = {0: 1, 1: 2, 2: "tie"}
_AUTO_J = Shape(name="Auto-J's pairwise test set", needs=("scenario", "label", "prompt", "response 1", "response 2"))


def _auto_j_entry(row: Row, row_number: int) -> Entry:
    needs = ", ".join(_AUTO_J.needs)
    winner = choice_field(row, "label", _AUTO_J_LABELS)
    sample = Sample(
        id=f"auto-j-{row_number}",
        question=text_field(row, "prompt", needs),
        answers=(text_field(row, "response 1", needs), text_field(row, "response 2", needs)),
        category=text_field(row, "scenario", needs),
    )
    return Entry(plain_row(sample, Label(sample_id="", winner=winner)))


PANDALM = Benchmark(
    name="pandalm",
    files="testset-v1.json",
    protocol="The human label is the majority of three annotators; the judge sees each pair in both orders, a conflict "
    "is a tie, and accuracy and macro precision, recall and F1 over 1, 2 and tie are reported.",
    judge_with="--both-orders --order-rule tie",
    source="PandaLM (Wang et al. 2023), WeOpenML/PandaLM, data/testset-v1.json",
    load=row_loader("pandalm", _PANDALM, _pandalm_entry),
)
LLMBAR = Benchmark(
    name="llmbar",
    files="one dataset.json for each set, in the folder that names the set",
    protocol="Accuracy per set is the mean of the two orders' accuracies, beside it the share of pairs on which both "
    "orders agree (LLMBar's own count takes two unreadable orders for equal) and Cohen's kappa between the orders; the "
    "four Adversarial sets are also averaged with equal weights; there are no ties.",
    judge_with="--both-orders",
    source="Zeng et al. 2024, Evaluating Large Language Models at Evaluating Instruction Following; LLMBar, Dataset/",
    load=_llmbar,
)
JUDGEBENCH = Benchmark(
    name="judgebench",
    files="one or more files of pairs, dataset=judgebench,response_model=....jsonl",
    protocol="Each pair is judged in both orders; it counts as right where both name the right answer, or one does and "
    "the other says tie or cannot be read; all else is wrong; accuracy overall and per category.",
    judge_with="--both-orders",
    source="JudgeBench (Tan et al. 2024), ScalerLab/JudgeBench, data/ and utils/metrics.py",
    load=row_loader("judgebench", _JUDGEBENCH, _judgebench_entry, several_files=True),
)
AUTO_J = Benchmark(
    name="auto-j",
    files="testdata_pairwise.jsonl",
    protocol="Agreement is the share of pairs on which both orders give the human label (1, 2 or tie), consistency the "
    "share on which both orders say the same, overall, per group of scenarios (8) and per scenario (58).",
    judge_with="--both-orders --order-rule tie",
    source="Auto-J (Li et al. 2023), GAIR-NLP/auto-j, data/test/ and codes/leaderboard/pairwise_eval.py",
    load=row_loader("auto-j", _AUTO_J, _auto_j_entry),
    details={"groups": {group: list(scenarios) for group, scenarios in AUTO_J_GROUPS.items()}},
)
