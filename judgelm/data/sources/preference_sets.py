"""Read preference sets and reward-model benchmarks: HelpSteer3, PPE, SafeRLHF, ..., RewardBench, and RM-Bench.

The `*_fields` functions convert a published row to the fields of a layout.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path

from judgelm.data.label_codes import FROM_ZERO, LLMBAR_CODE, WINNER_CODE, FieldCode
from judgelm.data.plain_rows import plain_row
from judgelm.data.readers.rows import Reject, Row, reject_row
from judgelm.data.readers.values import ID_FIELDS, describe
from judgelm.data.sources.layouts import llmbar_label, llmbar_sample, plain_label, plain_sample
from judgelm.data.sources.preferences import (
    answer_rank,
    battle_label,
    preference_label,
    preference_sample,
    responses_sample,
)
from judgelm.data.sources.source import Entry, Shape, Source, layout_facts, sample_of
from judgelm.errors import InputError
from judgelm.records import Label, Sample

Fields = dict[str, object]
Rewrite = Callable[[Row], Fields]

_RUBRIC_LEVELS = range(1, 6)


def _rewritten(row: Row, fields: Rewrite) -> Row:
    try:
        return row.with_data(fields(row))
    except KeyError as error:
        raise row.field_error(error.args[0], "missing, although it is in the first row; remove the row") from error


def _rest(row: Row, used: Sequence[str]) -> Fields:
    return {name: value for name, value in row.data.items() if name not in used and value is not None}


def _renamed(layout: str, row: Row) -> Fields:
    stated = layout_facts()["renamed-fields"][layout]
    names, optional = stated["fields"], stated.get("optional", {})
    fields: Fields = {name: row.data[published] for name, published in names.items()}
    fields |= {name: row.data.get(published) for name, published in optional.items()}
    return fields | ({"metadata": _rest(row, (*names.values(), *optional.values()))} if stated.get("rest") else {})


def helpsteer3_fields(row: Row) -> Fields:
    """HelpSteer3: from -3 to -1 the first response is preferred, from 1 to 3 the second, and 0 is a tie."""
    strength = row.number("overall_preference")
    if not -3 <= strength <= 3:
        raise row.field_error("overall_preference", f"expected a number from -3 to 3, got {strength:g}")
    return _renamed("helpsteer3", row) | {"winner": "tie" if strength == 0 else 1 if strength < 0 else 2}


def _rubric(row: Row) -> str:
    criterion = row.text("orig_criteria", "orig_criteria")
    levels = [(level, row.data.get(f"orig_score{level}_description")) for level in _RUBRIC_LEVELS]
    lines = [f"Score {level}: {description}" for level, description in levels if isinstance(description, str)]
    return "\n".join([f"[{criterion}]", *lines])


def preference_collection_fields(row: Row) -> Fields:
    """Prometheus pairs: the preference is the label, and the two grades (1 to 5) become metadata."""
    grades: Fields = {name: row.data[name] for name in ("orig_score_A", "orig_score_B") if name in row.data}
    return _renamed("preference_collection", row) | {"metadata": {"rubric": _rubric(row), **grades}}


def feedback_collection_fields(row: Row) -> Fields:
    """Prometheus grades: one answer, a grade from 1 to 5, and its rubric."""
    grade = row.number("orig_score")
    if grade not in _RUBRIC_LEVELS:
        raise row.field_error("orig_score", f"expected a whole number from 1 to 5, got {grade:g}")
    return _renamed("feedback_collection", row) | {"score": grade, "metadata": {"rubric": _rubric(row)}}


def nectar_fields(row: Row) -> Fields:
    """Nectar: the best and the worst of the ranked answers, if their ranks are unique."""
    ranked = row.data["answers"]
    if not isinstance(ranked, list) or len(ranked) < 2 or not all(isinstance(answer, dict) for answer in ranked):
        raise row.field_error("answers", f"expected at least two ranked answers, got {describe(ranked)}")
    by_rank = sorted(map(row.with_data, ranked), key=lambda answer: answer.number("rank"))
    ranks = [answer.number("rank") for answer in by_rank]
    if ranks[0] == ranks[1] or ranks[-1] == ranks[-2]:
        raise row.field_error("answers", "several answers share the best or the worst rank; remove the row")
    fields: Fields = {"prompt": row.data["prompt"], "metadata": _rest(row, ("prompt", "answers"))}
    for side, answer in (("chosen", by_rank[0]), ("rejected", by_rank[-1])):
        fields |= {side: answer.data.get("answer"), f"{side}_model": answer.data.get("model")}
    return fields


def ultrafeedback_fields(row: Row) -> Fields:
    """UltraFeedback: several completions, scored by the mean of their fine-grained ratings.

    `overall_score` is ignored, because a bug turned 1 into 10. Source: openbmb/UltraFeedback, issue 8.
    """
    completions = row.data["completions"]
    if not isinstance(completions, list) or not all(isinstance(each, dict) for each in completions):
        raise row.field_error("completions", f"expected a list of completions, got {describe(completions)}")
    rows = [row.with_data(each) for each in completions]
    return {
        "id": row.data.get("id"),
        "question": row.data["instruction"],
        "answers": [each.data.get("response") for each in rows],
        "scores": [each.number("fine-grained_score") for each in rows],
        "answer_models": [each.data.get("model") for each in rows],
        "category": row.data.get("source"),
    }


SECTIONS: Mapping[str, Mapping[str, int]] = layout_facts()["rewardbench"]["details"]["sections"]
"""RewardBench's sections and the published weights of their subsets. The fifth, Prior Sets, is a separate data set."""

_SECTION_OF = {subset: section for section, subsets in SECTIONS.items() for subset in subsets}
SECOND_SUBSETS: tuple[str, ...] = tuple(layout_facts()["rewardbench-2"]["details"]["subsets"])
REWARDBENCH_NEEDS = ("id", "prompt", "chosen", "rejected", "subset")


def rewardbench_entry(row: Row, row_number: int) -> Entry:
    """Convert a RewardBench row; the section is stored in the metadata."""
    if isinstance(row.data["chosen"], list) and not any(isinstance(message, dict) for message in row.data["chosen"]):
        raise row.error("there are several chosen answers, as in RewardBench 2; import the file as rewardbench-2")
    subset = row.text("subset", "subset")
    if subset not in _SECTION_OF:
        raise row.error(f'field "subset": "{subset}" is not in RewardBench; import the file as preferences')
    sample = preference_sample(row)
    metadata = {**sample.metadata, "section": _SECTION_OF[subset]}
    return Entry(plain_row(replace(sample, category=subset, metadata=metadata), preference_label(row, False)))


def rewardbench_2_entry(row: Row, row_number: int) -> Entry:
    """Convert a RewardBench 2 row: all answers, sorted by `answer_rank`, with score 1 if correct, else 0."""
    for name in ("chosen", "rejected"):
        if not isinstance(row.data[name], list):
            raise row.field_error(name, "expected a list of strings; import rows with one string as rewardbench")
    question, subset = (row.text(name, ", ".join(REWARDBENCH_NEEDS)) for name in ("prompt", "subset"))
    chosen, wrong = row.text_list("chosen"), row.text_list("rejected")
    if subset not in SECOND_SUBSETS:
        finding = f'expected one of {", ".join(SECOND_SUBSETS)}, got "{subset}"; correct the row'
        raise row.field_error("subset", finding)
    if subset != "Ties" and len(chosen) != 1:
        raise row.error(f'field "chosen": expected 1 string, except in the subset Ties, got {len(chosen)}')
    answers = (*chosen, *wrong)
    order = sorted(range(len(answers)), key=lambda index: answer_rank(question, answers[index]))
    models = row.data.get("models")
    named = row.text_list("models") if isinstance(models, list) and len(models) == len(answers) else ()
    shown = tuple(answers[index] for index in order)
    shown_models = tuple(named[index] for index in order) if named else ()
    metadata = row.extras({*REWARDBENCH_NEEDS, *ID_FIELDS, "models"})
    sample = sample_of(row.id(), question, shown, models=shown_models, category=subset, metadata=metadata)
    scores = tuple(1.0 if index < len(chosen) else 0.0 for index in order)
    return Entry(plain_row(sample, Label(sample_id="", winner=None, scores=scores)))


def _pair(row: Row, name: str, category: str, metadata: Mapping[str, object]) -> Entry:
    sample = replace(preference_sample(row), id=name, category=category, metadata=metadata)
    return Entry(plain_row(sample, preference_label(row, False)))


_DOMAINS = {"chat": "Chat", "math": "Math", "code": "Code", "safety": "Safety"}
DIFFICULTIES = ("easy", "normal", "hard")
RM_BENCH_SECTIONS = {
    domain: dict.fromkeys(subsets, 1.0) for domain, subsets in layout_facts()["rm-bench"]["details"]["sections"].items()
}
_STYLES = ("concise", "detailed", "markdown")
RM_BENCH = Shape(name="RM-Bench", needs=("id", "prompt", "chosen", "rejected"))


def rm_bench_entries(row: Row, row_number: int) -> list[Entry | Reject]:
    """Return RM-Bench's nine pairs of a chosen and a rejected style, rejecting pairs of equal texts."""
    part = str(row.data.get("domain") or Path(row.file).name.partition("_")[0])
    domain = _DOMAINS.get(part.partition("-")[0])
    if domain is None:
        known = ", ".join(_DOMAINS)
        raise row.error(f'expected a domain field or a file name that begins with one of {known}, got "{part}"')
    chosen, rejected = row.text_list("chosen"), row.text_list("rejected")
    if len(chosen) != len(_STYLES) or len(rejected) != len(_STYLES):
        raise row.error(f"expected 3 chosen and 3 rejected answers, got {len(chosen)} and {len(rejected)}")
    entries: list[Entry | Reject] = []
    for better, worse in product(range(3), repeat=2):
        fields = {"prompt": row.data["prompt"], "chosen": chosen[better], "rejected": rejected[worse]}
        difficulty = DIFFICULTIES[1 + (worse > better) - (worse < better)]
        name = f"{part}-{row.required_id('id', 'it identifies the pairs')}-{_STYLES[better]}-{_STYLES[worse]}"
        metadata = {"chosen_style": _STYLES[better], "rejected_style": _STYLES[worse]}
        try:
            entries.append(_pair(row.with_data(fields), name, f"{domain}, {difficulty}", metadata))
        except InputError as error:
            entries.append(reject_row(row, error))
    return entries


def _rewritten_set(
    name: str,
    fields: Rewrite,
    layout: tuple[Callable[[Row], Sample], Callable[[Row, bool], Label | None]],
    code: tuple[FieldCode, ...] = (),
) -> Source:
    sample, label = layout
    return Source(
        name=name,
        sample=lambda row: sample(_rewritten(row, fields)),
        label=lambda row, with_reference: label(_rewritten(row, fields), with_reference),
        code=code,
    )


_PLAIN = (plain_sample, plain_label)
_RESPONSES = (responses_sample, battle_label)
_SAFE_RLHF_CODE = (FieldCode(fields=("better_response_id",), values=FROM_ZERO),)
_REWRITTEN = (
    _rewritten_set("helpsteer3", helpsteer3_fields, _RESPONSES),
    _rewritten_set("ppe-human", partial(_renamed, "ppe-human"), _RESPONSES, WINNER_CODE),
    _rewritten_set("safe-rlhf", partial(_renamed, "safe-rlhf"), _PLAIN, _SAFE_RLHF_CODE),
    _rewritten_set("ultrafeedback", ultrafeedback_fields, _PLAIN),
    _rewritten_set("preference_collection", preference_collection_fields, _PLAIN),
    _rewritten_set("feedback_collection", feedback_collection_fields, _PLAIN),
    _rewritten_set("nectar", nectar_fields, (preference_sample, preference_label)),
    _rewritten_set("offsetbias", partial(_renamed, "offsetbias"), (llmbar_sample, llmbar_label), LLMBAR_CODE),
)
SOURCES = (
    *_REWRITTEN,
    Source(name="rewardbench", shape=Shape(name="RewardBench", needs=REWARDBENCH_NEEDS), entry=rewardbench_entry),
    Source(name="rewardbench-2", shape=Shape(name="RewardBench 2", needs=REWARDBENCH_NEEDS), entry=rewardbench_2_entry),
    Source(name="rm-bench", shape=RM_BENCH, entry=rm_bench_entries),
    Source(name="preferences"),
)
