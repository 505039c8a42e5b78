"""The field names of each known format, and how its rows become samples and labels.

A format is recognised by the fields of a file's first good row. This file reads no files: rows come from
`judgelm.data.readers.files`, and `judgelm.data.samples` drives both.
"""

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from judgelm.data.formats import dialogues, preferences
from judgelm.data.formats import labels as row_labels
from judgelm.data.formats import samples as row_samples
from judgelm.data.readers.fields import ID_FIELDS, row_error
from judgelm.data.readers.rows import Row
from judgelm.errors import InputError
from judgelm.records import Label, Sample


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """One kind of file and the conversion of its rows.

    Attributes:
        name: what users and manifests call it.
        needs: fields without which a row is not of this format.
        mapping: source field of each part. As declared here, `a / b` names alternatives; `detect_format` narrows
            it to the fields that are there.
        sample: row -> Sample. Raises InputError with the row's place.
        label: row, whether the label made with a reference is meant -> Label, or None where the row has none.
            The label's `sample_id` is left empty for the caller to fill in.
        note: an error to raise instead, where such rows alone cannot be judged.
        single_votes: rows without id that repeat a pair, in any order of its answers, are further votes on it.
    """

    name: str
    needs: tuple[str, ...]
    mapping: Mapping[str, str]
    sample: Callable[[Row], Sample]
    label: Callable[[Row, bool], Label | None]
    note: str = ""
    single_votes: bool = False


def _no_label(row: Row, with_reference: bool) -> Label | None:
    return None


_BATTLE_LABELS = "winner_model_a, winner_model_b / winner / score / scores / score_1, score_2 / score_a, score_b"

FORMATS = (
    Format(
        name="dialogue",
        needs=("turns",),
        mapping={
            "id": "id / question_id / idx / review_id",
            "turns": "turns",
            "models": "answer_models / model_a, model_b / model_1, model_2",
            "label": _BATTLE_LABELS,
        },
        sample=dialogues.dialogue_sample,
        label=preferences.battle_label,
    ),
    Format(
        name="judgelm",
        needs=("question_body", "answer1_body", "answer2_body"),
        mapping={
            "id": "question_id / id / review_id / idx",
            "question": "question_body",
            "answers": "answer1_body, answer2_body",
            "models": "answer1_model_id, answer2_model_id",
            "reference": "reference",
            "label": "score / text / winner / preference",
        },
        sample=row_samples.judgelm_sample,
        label=row_labels.judgelm_label,
    ),
    Format(
        name="pandalm",
        needs=("instruction", "response1", "response2"),
        mapping={
            "id": "idx / id / question_id / review_id",
            "question": "instruction",
            "question, continued": "input",
            "answers": "response1, response2",
            "models": "cmp_key",
            "category": "motivation_app",
            "reference": "reference",
            "label": "annotator1",
        },
        sample=row_samples.pandalm_sample,
        label=row_labels.pandalm_label,
    ),
    Format(
        name="pandalm_train",
        needs=("inputs", "outputs"),
        mapping={
            "id": "idx / id / question_id / review_id",
            "question and answers": "inputs",
            "label and reference": "outputs",
        },
        sample=row_samples.pandalm_train_sample,
        label=row_labels.pandalm_train_label,
    ),
    Format(
        name="alpaca_eval",
        needs=("instruction", "output_1", "output_2"),
        mapping={
            "id": "id / question_id / idx / review_id",
            "question": "instruction",
            "answers": "output_1, output_2",
            "models": "generator_1, generator_2",
            "category": "dataset",
            "label": "preference",
        },
        sample=row_samples.alpaca_eval_sample,
        label=row_labels.alpaca_eval_label,
        single_votes=True,
    ),
    Format(
        name="alpaca_eval_outputs",
        needs=("instruction", "output"),
        mapping={"question": "instruction", "answer": "output", "model": "generator"},
        sample=row_samples.no_sample,
        label=_no_label,
        note="AlpacaEval outputs hold one answer per instruction; give two such files, and they are joined",
    ),
    Format(
        name="llmbar",
        needs=("input", "output_1", "output_2"),
        mapping={"question": "input", "answers": "output_1, output_2", "label": "label"},
        sample=row_samples.llmbar_sample,
        label=row_labels.llmbar_label,
    ),
    Format(
        name="plain",
        needs=("question", "answer_1", "answer_2"),
        mapping={
            "id": "id / question_id / idx / review_id",
            "question": "question",
            "answers": "answers / answer_1, answer_2 / answer",
            "models": "answer_models / model_1, model_2",
            "images": "images / image",
            "reference": "reference",
            "category": "category",
            "label": "winner / score / scores / score_1, score_2 / score_a, score_b / preference",
        },
        sample=row_samples.plain_sample,
        label=row_labels.plain_label,
    ),
    Format(
        name="preference",
        needs=("chosen", "rejected"),
        mapping={
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
        sample=preferences.preference_sample,
        label=preferences.preference_label,
    ),
    Format(
        name="arena",
        needs=("conversation_a", "conversation_b"),
        mapping={
            "id": "id / question_id / idx / review_id",
            "question and answers": "conversation_a, conversation_b",
            "models": "model_a, model_b",
            "reference": "reference",
            "label": _BATTLE_LABELS,
        },
        sample=preferences.arena_sample,
        label=preferences.battle_label,
    ),
    Format(
        name="responses",
        needs=("response_a", "response_b"),
        mapping={
            "id": "id / question_id / idx / review_id",
            "question": "prompt / question / instruction",
            "answers": "response_a, response_b",
            "models": "model_a, model_b",
            "reference": "reference",
            "label": _BATTLE_LABELS,
        },
        sample=preferences.responses_sample,
        label=preferences.battle_label,
    ),
)

LABELS = Format(
    name="labels",
    needs=("id",),
    mapping={
        "id": "question_id / id / idx / review_id",
        "label": "winner / score / scores / score_1, score_2 / score_a, score_b / text / score_w_reference / "
        "text_w_reference / annotator1 / preference / label",
    },
    sample=row_samples.label_alone,
    label=row_labels.any_label,
    note="rows hold labels but no answers to judge; give the file with the answers, and this one as labels "
    "(a table of reviews is joined with its answers by `python data_tools/convert.py reviews`)",
)
"""Rows of an id and a label, which name samples of another file."""

PAIR_LABELS = replace(
    LABELS,
    mapping={
        "id": "question_id, model_a, model_b / question_id, model_1, model_2",
        "label": "label / g1_winner, g2_winner",
    },
    sample=preferences.pair_label_alone,
    label=preferences.pair_label,
)
"""Labels of pairs named by a question and two models; the answers are in another file."""

_PAIR_LABEL_FIELDS = (
    {"question_id", "model_a", "model_b", "label"},
    {"question_id", "model_1", "model_2", "g1_winner", "g2_winner"},
)
_LABEL_MARKS = frozenset({"winner", "score", "scores", "score_1", "score_a", "score_w_reference", "text_w_reference"})
_MARKS_AMONG_LABELS = frozenset({"text", "annotator1", "preference", "label"})
"""Fields that count as labels only where a file of labels is expected."""


def detect_format(row: Row, *, label_rows: bool = False) -> Format:
    """The format of a file, from the field names of its first good row; its mapping narrowed to those fields.

    Args:
        row: the file's first good row.
        label_rows: whether a file of labels is expected.

    Raises:
        InputError: no format matches; names the fields, those that each format needs, and likely misspellings.
    """
    fields = row.data.keys()
    for candidate in FORMATS:
        if all(need in fields for need in candidate.needs):
            return _narrowed(candidate, row)
    if "question" in fields and ("answers" in fields or "answer" in fields):
        return _narrowed(next(candidate for candidate in FORMATS if candidate.name == "plain"), row)
    if any(needs <= fields for needs in _PAIR_LABEL_FIELDS):
        return _narrowed(PAIR_LABELS, row)
    marks = _LABEL_MARKS | _MARKS_AMONG_LABELS if label_rows else _LABEL_MARKS
    if not marks.isdisjoint(fields) and any(name in fields for name in ID_FIELDS):
        return _narrowed(LABELS, row)
    raise _unknown_fields(row)


def _narrowed(row_format: Format, row: Row) -> Format:
    mapping = {}
    for part, alternatives in row_format.mapping.items():
        for names in alternatives.split(" / "):
            if all(name in row.data for name in names.split(", ")):
                mapping[part] = names
                break
    mapping.setdefault("id", "a hash of the content")
    return replace(row_format, mapping=mapping)


def _unknown_fields(row: Row) -> InputError:
    fields = list(row.data)
    nearest = max(FORMATS, key=lambda known: _likeness(known, fields))
    missing = [need for need in nearest.needs if need not in row.data]
    guesses = [f'"{near}" looks like "{need}"' for need in missing if (near := _near(need, fields))]
    known = "; ".join(f"{known.name} ({', '.join(known.needs)})" for known in FORMATS)
    hint = f"; {', '.join(guesses)}" if guesses else ""
    near = (
        f" Nearest is {nearest.name}, without {', '.join(missing)}."
        if len(missing) < len(nearest.needs) or hint
        else ""
    )
    return row_error(
        row,
        f"fields not recognised: {', '.join(fields) or 'none'}{hint}.{near} Formats known and what each needs: "
        f"{known}; or an id with a winner or score, as labels. The simplest: name them question, answer_1, answer_2 "
        "(in a table by its first line)",
    )


def _likeness(known: Format, fields: list[str]) -> float:
    """Similarity of the fields to those that a format needs, from 0 to 1."""
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
