"""Published schemas of data sets on the hub: files of one split -> rows that `judgelm data build` reads.

Most schemas are formats or benchmarks that judgelm reads already; the others are rewritten to one of them, field by
field, before they are checked. A row that cannot be used is a reject.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from judgelm.data.benchmarks.base import Entry, Load, Shape, convert_file, plain_row
from judgelm.data.benchmarks.catalog import BENCHMARKS
from judgelm.data.formats import labels, preferences, samples
from judgelm.data.formats.catalog import FORMATS
from judgelm.data.hub.judgelm_files import load_judgelm
from judgelm.data.readers.fields import describe, field_error, number_field, text_field
from judgelm.data.readers.rejects import FileUse, OnReject
from judgelm.data.readers.rows import Row
from judgelm.data.samples import SampleStream, labelled
from judgelm.errors import InputError, not_found
from judgelm.records import Label, Sample

Fields = dict[str, object]

_PAIR_FORMATS = ("pandalm_train", "preference", "arena", "responses")
_BENCHMARKS = ("judgebench", "mt-bench", "rewardbench", "rewardbench-2")
_RUBRIC_LEVELS = range(1, 6)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewrite:
    """A schema that is rewritten to the fields of a format.

    Attributes:
        needs: fields of each published row.
        fields: published row -> the format's fields.
        sample: of the format.
        label: of the format.
    """

    needs: tuple[str, ...]
    fields: Callable[[Row], Fields]
    sample: Callable[[Row], Sample]
    label: Callable[[Row, bool], Label | None]

    def entry(self, row: Row, row_number: int) -> Entry:
        """One published row as a plain row.

        Raises:
            InputError: the row cannot be used.
        """
        rewritten = Row(row.file, row.line, self.fields(row))
        return Entry(plain_row(self.sample(rewritten), self.label(rewritten, False)))


def _rest(row: Row, used: Sequence[str]) -> Fields:
    """Fields that are kept as metadata."""
    return {name: value for name, value in row.data.items() if name not in used and value is not None}


def _helpsteer3(row: Row) -> Fields:
    """HelpSteer3's preferences: -3 to -1 prefer the first response, 1 to 3 the second, 0 neither."""
    strength = number_field(row, "overall_preference")
    if not -3 <= strength <= 3:
        raise field_error(row, "overall_preference", f"expected a number from -3 to 3, got {strength:g}")
    return {
        "prompt": row.data["context"],
        "response_a": row.data["response1"],
        "response_b": row.data["response2"],
        "winner": "tie" if strength == 0 else 1 if strength < 0 else 2,
        "category": row.data.get("domain"),
        "metadata": _rest(row, ("context", "response1", "response2", "domain")),
    }


def _rubric(row: Row) -> str:
    """The criterion and its levels as Prometheus' prompts show them."""
    criterion = text_field(row, "orig_criteria", "orig_criteria")
    levels = [(level, row.data.get(f"orig_score{level}_description")) for level in _RUBRIC_LEVELS]
    lines = [f"Score {level}: {description}" for level, description in levels if isinstance(description, str)]
    return "\n".join([f"[{criterion}]", *lines])


def _preference_collection(row: Row) -> Fields:
    """Prometheus' pairs: the preference is the label, the two grades of 1 to 5 are metadata."""
    grades: Fields = {name: row.data[name] for name in ("orig_score_A", "orig_score_B") if name in row.data}
    return {
        "question": row.data["orig_instruction"],
        "answer_1": row.data["orig_response_A"],
        "answer_2": row.data["orig_response_B"],
        "reference": row.data.get("orig_reference_answer"),
        "winner": row.data["orig_preference"],
        "reason": row.data.get("orig_feedback"),
        "metadata": {"rubric": _rubric(row), **grades},
    }


def _feedback_collection(row: Row) -> Fields:
    """Prometheus' graded answers: one answer, a grade from 1 to 5, and the rubric that it was graded by."""
    grade = number_field(row, "orig_score")
    if grade not in _RUBRIC_LEVELS:
        raise field_error(row, "orig_score", f"expected a whole number from 1 to 5, got {grade:g}")
    return {
        "question": row.data["orig_instruction"],
        "answer": row.data["orig_response"],
        "reference": row.data.get("orig_reference_answer"),
        "score": grade,
        "reason": row.data.get("orig_feedback"),
        "metadata": {"rubric": _rubric(row)},
    }


def _nectar(row: Row) -> Fields:
    """Nectar's ranked answers: the best against the worst, which are alone in their ranks."""
    ranked = row.data["answers"]
    if not isinstance(ranked, list) or len(ranked) < 2 or not all(isinstance(answer, dict) for answer in ranked):
        raise field_error(row, "answers", f"expected ranked answers, at least two, got {describe(ranked)}")
    answers = [Row(row.file, row.line, answer) for answer in ranked]
    by_rank = sorted(answers, key=lambda answer: number_field(answer, "rank"))
    ranks = [number_field(answer, "rank") for answer in by_rank]
    if ranks[0] == ranks[1] or ranks[-1] == ranks[-2]:
        raise field_error(row, "answers", "the best or the worst rank is shared; leave the row out")
    return {
        "prompt": row.data["prompt"],
        "chosen": by_rank[0].data.get("answer"),
        "rejected": by_rank[-1].data.get("answer"),
        "chosen_model": by_rank[0].data.get("model"),
        "rejected_model": by_rank[-1].data.get("model"),
        "metadata": _rest(row, ("prompt", "answers")),
    }


def _offsetbias(row: Row) -> Fields:
    """OffsetBias: LLMBar's fields, with the question called `instruction`."""
    return {"input": row.data["instruction"]} | {name: row.data[name] for name in ("output_1", "output_2", "label")}


def _arena_140k(row: Row) -> Fields:
    """The arena's votes without `full_conversation`, which says both dialogues once more."""
    return _rest(row, ("full_conversation",))


_PROMETHEUS_PAIR = ("orig_instruction", "orig_response_A", "orig_response_B", "orig_criteria", "orig_preference")
REWRITES: Mapping[str, Rewrite] = {
    "helpsteer3": Rewrite(
        needs=("context", "response1", "response2", "overall_preference"),
        fields=_helpsteer3,
        sample=preferences.responses_sample,
        label=preferences.battle_label,
    ),
    "preference_collection": Rewrite(
        needs=_PROMETHEUS_PAIR,
        fields=_preference_collection,
        sample=samples.plain_sample,
        label=labels.plain_label,
    ),
    "feedback_collection": Rewrite(
        needs=("orig_instruction", "orig_response", "orig_criteria", "orig_score"),
        fields=_feedback_collection,
        sample=samples.plain_sample,
        label=labels.plain_label,
    ),
    "nectar": Rewrite(
        needs=("prompt", "answers"),
        fields=_nectar,
        sample=preferences.preference_sample,
        label=preferences.preference_label,
    ),
    "arena_140k": Rewrite(
        needs=("conversation_a", "conversation_b", "winner"),
        fields=_arena_140k,
        sample=preferences.arena_sample,
        label=preferences.battle_label,
    ),
    "offsetbias": Rewrite(
        needs=("instruction", "output_1", "output_2", "label"),
        fields=_offsetbias,
        sample=samples.llmbar_sample,
        label=labels.llmbar_label,
    ),
}


def _rewriting_load(name: str, rewrite: Rewrite) -> Load:
    def load(files: Sequence[str], on_reject: OnReject) -> Iterator[Entry]:
        for path in files:
            yield from convert_file(path, Shape(name=name, needs=rewrite.needs), rewrite.entry, on_reject)

    return load


def _format_load(name: str) -> Load:
    """A loader of pairs in one of judgelm's formats."""
    needs = ", ".join(next(known for known in FORMATS if known.name == name).needs)

    def load(files: Sequence[str], on_reject: OnReject) -> Iterator[Entry]:
        for path in files:
            use = FileUse(path=path, expected=needs, on_reject=on_reject)
            stream = SampleStream([path], on_reject=use.reject, answers=(2, 2))
            if stream.format.name != name:
                finding = f"read as {stream.format.name}, expected {name} ({needs})"
                raise InputError(f"{path}: {finding}; the published schema has changed")
            for sample, (label,) in labelled(stream, use, False):
                yield Entry(plain_row(sample, label))

    return load


SCHEMAS: Mapping[str, Load] = {
    "judgelm": load_judgelm,
    **{name: _format_load(name) for name in _PAIR_FORMATS},
    **{name: BENCHMARKS[name].load for name in _BENCHMARKS},
    **{name: _rewriting_load(name, rewrite) for name, rewrite in REWRITES.items()},
}
"""Name of a published schema -> files of one split, a handler of rejects -> entries."""


def get_schema(name: str) -> Load:
    """The reader of that schema.

    Raises:
        ConfigError: there is none.
    """
    if name not in SCHEMAS:
        raise not_found("schema", name, SCHEMAS)
    return SCHEMAS[name]
