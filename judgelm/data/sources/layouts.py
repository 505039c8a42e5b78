"""Readers for labelled answers in plain, JudgeLM, PandaLM, AlpacaEval, and LLMBar format."""

import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import count, takewhile
from pathlib import Path

from judgelm.data.label_codes import PAIR_CODE, ZERO_IS_TIE, FieldCode, is_missing, majority, winner_field
from judgelm.data.labelled_pair import LabelledPair, judgelm_row, rounded_preference, winner_by_preference
from judgelm.data.readers.rows import OnReject, Row
from judgelm.data.readers.values import ID_FIELDS, content_id, describe, model_name
from judgelm.data.sources.source import Entry, Shape, Source, convert_file, known_fields, sample_of, with_stated_fields
from judgelm.records import Label, Sample, Winner, winner_of

_JUDGELM_NEEDS = "question_body, answer1_body, answer2_body"
_PLAIN_NEEDS = "question, answer_1, answer_2"
_PANDALM_IDS = ("idx", "id", "question_id", "review_id")
_LABEL_FIELDS = frozenset({"winner", "votes", "score", "text", "score_w_reference", "text_w_reference", "preference"})
_JUDGELM_FIELDS = _LABEL_FIELDS | {
    *("question_body", "reference", "category", *ID_FIELDS),
    *(f"answer{index}_{part}" for index in range(1, 27) for part in ("body", "model_id")),
}
_PLAIN_FIELDS = known_fields("plain")


def judgelm_sample(row: Row) -> Sample:
    """Read JudgeLM's `question_body`, `answer1_body`, `answer2_body`, ..."""
    question = row.text("question_body", _JUDGELM_NEEDS)
    answers = row.numbered_texts("answer{}_body", _JUDGELM_NEEDS)
    reference = row.reference()
    metadata = row.extras(_JUDGELM_FIELDS)
    name = row.id(("question_id", "id", "review_id", "idx"))
    models = _names(row, [f"answer{index}_model_id" for index in range(1, len(answers) + 1)])
    category = row.optional_text("category") or _category(metadata)
    return sample_of(name, question, answers, reference, models=models, category=category, metadata=metadata)


def _names(row: Row, fields: Sequence[str]) -> tuple[str, ...]:
    models = [row.data.get(name) for name in fields]
    return () if None in models else tuple(map(str, models))


def _category(metadata: Mapping[str, object]) -> str | None:
    category = metadata.get("category")
    return category if isinstance(category, str) else None


def _pandalm_texts(row: Row, needs: str) -> tuple[str, tuple[str, ...], dict[str, object]]:
    question = row.text("instruction", needs)
    context = row.optional_text("input")
    names = ("response1", "response2")
    coerced = [name for name in names if isinstance(row.data.get(name), bool | int | float)]
    answers = tuple(str(row.data[name]) if name in coerced else row.text(name, needs) for name in names)
    return f"{question}\n\n{context}" if context else question, answers, {"coerced": coerced} if coerced else {}


def pandalm_sample(row: Row) -> Sample:
    """Read PandaLM's test set. Boolean and numeric responses are converted to strings and listed in `metadata`."""
    question, answers, metadata = _pandalm_texts(row, "instruction, response1, response2")
    # No model name in the test set contains an underscore, so the split is unambiguous.
    pair = [model_name(name) for name in (row.optional_text("cmp_key") or "").split("_")]
    models = tuple(pair) if len(pair) == 2 else ()
    name, reference = row.id(_PANDALM_IDS) or content_id(question, answers, None), row.reference()
    category, metadata = row.optional_text("motivation_app"), {**row.extras(known_fields("pandalm")), **metadata}
    return sample_of(name, question, answers, reference, models=models, category=category, metadata=metadata)


def pandalm_train_sample(row: Row) -> Sample:
    """Read PandaLM's training set: `inputs` and `outputs`."""
    inputs, outputs = row.data.get("inputs"), row.data.get("outputs")
    if not isinstance(inputs, dict):
        raise row.field_error("inputs", "expected an object with instruction, response1, response2")
    question, answers, metadata = _pandalm_texts(row.with_data(inputs), "inputs with instruction, response1, response2")
    reference = row.with_data(outputs).reference("reference_response") if isinstance(outputs, dict) else None
    metadata = {**row.extras({"inputs", "outputs", *ID_FIELDS}), **metadata}
    return sample_of(row.id(_PANDALM_IDS), question, answers, reference, metadata=metadata)


def alpaca_eval_sample(row: Row) -> Sample:
    """Read AlpacaEval's annotations. The id is a hash of the texts and does not depend on the order of the outputs."""
    question, *answers = row.texts("instruction", "output_1", "output_2")
    name, models = row.id() or content_id(question, sorted(answers), None), _names(row, ("generator_1", "generator_2"))
    category, metadata = row.optional_text("dataset"), row.extras(known_fields("alpaca-eval"))
    return sample_of(name, question, answers, models=models, category=category, metadata=metadata)


def llmbar_sample(row: Row) -> Sample:
    """Read LLMBar's `input`, `output_1`, `output_2`."""
    question, *answers = row.texts("input", "output_1", "output_2")
    metadata = row.extras({"input", "output_1", "output_2", "label", *ID_FIELDS})
    return sample_of(row.id(), question, answers, metadata=metadata)


def plain_sample(row: Row) -> Sample:
    """Read `question` and `answer_1`, `answer_2`, ..., `answers`, or `answer`; unknown fields become metadata."""
    answers = plain_answers(row)
    question = row.text("question", _PLAIN_NEEDS)
    reference = row.reference()
    extras = row.extras(_PLAIN_FIELDS)
    metadata = {name: value for name, value in extras.items() if not _is_numbered_field(name, len(answers))}
    name, models = row.id(), models_of(row, len(answers))
    images, category = row.images(), row.optional_text("category") or _category(metadata)
    return sample_of(
        name, question, answers, reference, models=models, images=images, category=category, metadata=metadata
    )


def models_of(row: Row, count: int) -> tuple[str, ...]:
    """Return the `count` model names in `answer_models`, or else `model_1` and `model_2`."""
    several = row.data.get("answer_models")
    return row.text_list("answer_models", count) if several else row.optional_texts("model_1", "model_2")


def plain_answers(row: Row) -> tuple[str, ...]:
    """Return the answers of a plain row."""
    if "answers" in row.data:
        return row.text_list("answers")
    if "answer" in row.data and "answer_1" not in row.data:
        return (row.text("answer", _PLAIN_NEEDS),)
    if row.data.keys().isdisjoint(("answer_1", "answer_2")):
        raise row.error("the row has no answer; it must contain answer, answers, or answer_1 and answer_2")
    return row.numbered_texts("answer_{}", _PLAIN_NEEDS)


def _is_numbered_field(name: str, count: int) -> bool:
    kind, _, suffix = name.partition("_")
    return kind in ("answer", "score") and suffix.isdecimal() and int(suffix) <= count


def no_sample(row: Row) -> Sample:
    """Reject the row."""
    raise row.error("this row does not contain a pair of answers")


def label_alone(row: Row) -> Sample:
    """Return a sample without answers for a row with only a label."""
    name = row.id(("question_id", "id", "idx", "review_id"))
    if name is None:
        raise row.error(f"a label row must have an id in one of {', '.join(ID_FIELDS)}")
    metadata = row.extras(_PLAIN_FIELDS | _LABEL_FIELDS)
    category = row.optional_text("category") or _category(metadata)
    return Sample(id=name, question="", answers=(), category=category, metadata=metadata)


_SCORE_LINE = re.compile(r"\s*(\d+(?:\.\d+)?)[ \t,]+(\d+(?:\.\d+)?)[ \t]*(?:\r?\n\s*|$)")


def split_review(text: str) -> tuple[tuple[float, float] | None, str]:
    """Split a review into its leading score line, if any, and the reason."""
    score_line = _SCORE_LINE.match(text)
    if score_line is None:
        return None, text
    return (float(score_line[1]), float(score_line[2])), text[score_line.end() :]


def judgelm_label(row: Row, with_reference: bool) -> Label | None:
    """Read JudgeLM's `score` and `text`, or `score_w_reference` and `text_w_reference`, on the file's scale.

    A review failed, and has no label, if its text is `error` or its score is [-1, -1]. Rows that judgelm writes without
    scores have a `winner` and a null `score`. If `with_reference` is False, `preference` is also read.
    """
    label = _judgelm_review(row, with_reference)
    return label if with_reference else _with_preference(row, label or _voted(row))


def _judgelm_review(row: Row, with_reference: bool) -> Label | None:
    suffix = "_w_reference" if with_reference else ""
    text = row.optional_text(f"text{suffix}")
    if not with_reference and row.data.get("score", ...) is None and row.data.get("winner") is not None:
        return Label(sample_id="", winner=winner_field(row), reason=text or None, votes=_votes(row))
    if text is not None and text.strip() == "error":
        return None
    written, reason = (None, "") if text is None else split_review(text)
    if row.data.get(f"score{suffix}") is not None:
        scores: tuple[float, float] | None = row.score_pair(f"score{suffix}")
        if written is not None and scores != written:
            reason = text or ""
    else:
        scores = written
    if scores == (-1.0, -1.0):
        return None
    if scores is not None:
        votes = () if with_reference else _votes(row)
        return Label(sample_id="", winner=winner_of(scores), scores=scores, reason=reason or None, votes=votes)
    if with_reference or row.data.get("winner") is None:
        return None
    return Label(sample_id="", winner=winner_field(row), reason=reason or None, votes=_votes(row))


def _with_preference(row: Row, label: Label | None) -> Label | None:
    if not row.has("preference"):
        return label
    preference = row.number("preference")
    if not 0 <= preference <= 1:
        finding = f"expected P(first answer is better) from 0 to 1, got {preference:g}"
        raise row.field_error(
            "preference", f"{finding}; AlpacaEval's scale (1 to 2) is supported only with output_1 and output_2"
        )
    preference = rounded_preference(preference)
    winner = winner_by_preference(preference)
    if label is None:
        return Label(sample_id="", winner=winner, preference=preference)
    if label.winner != winner and (label.scores is None or "tie" not in (label.winner, winner)):
        raise row.field_error("preference", f"{preference:g} contradicts the winner {label.winner}; correct one")
    return replace(label, preference=preference)


def _votes(row: Row) -> tuple[Winner, ...]:
    votes = row.data.get("votes")
    if votes is None:
        return ()
    if not isinstance(votes, list):
        raise row.field_error("votes", 'expected a list of 1, 2 and "tie"')
    return tuple(winner_field(row.with_data({"votes": vote}), "votes") for vote in votes)


def _annotators(row: Row) -> tuple[Winner, ...]:
    names = takewhile(row.data.__contains__, map("annotator{}".format, count(1)))
    return tuple(winner_field(row, name) for name in names if not is_missing(row.data[name]))


def pandalm_label(row: Row, with_reference: bool) -> Label | None:
    """Return the majority vote of `annotator1`, `annotator2`, ..., or None if there is no majority."""
    votes = _annotators(row)
    winner = majority(votes)
    return None if winner is None else Label(sample_id="", winner=winner, votes=votes)


def pandalm_train_label(row: Row, with_reference: bool) -> Label | None:
    """Read PandaLM's `outputs.evaluation_result` ("1", "2", or "Tie") and `evaluation_reason`."""
    outputs = row.data.get("outputs")
    if not isinstance(outputs, dict):
        raise row.field_error("outputs", "expected an object with evaluation_result; see the PandaLM training set")
    if outputs.get("evaluation_result") is None:
        return None
    result = outputs["evaluation_result"]
    cleaned = row.with_data({"evaluation_result": result.strip() if isinstance(result, str) else result})
    reason = row.with_data(outputs).optional_text("evaluation_reason")
    return Label(sample_id="", winner=winner_field(cleaned, "evaluation_result"), reason=reason or None)


def alpaca_eval_label(row: Row, with_reference: bool) -> Label | None:
    """Read AlpacaEval's `preference`: 1 is the first output, 2 the second output, and 1.5 a tie (0 in older versions).

    P(first output is better) is 2 minus this value.
    """
    if is_missing(row.data.get("preference")):
        return None
    preference = row.number("preference")
    if preference != 0 and not 1 <= preference <= 2:
        finding = f"expected a number from 1 to 2, or 0 for a tie, got {describe(row.data['preference'])}"
        raise row.field_error("preference", finding)
    first_better = 0.5 if preference == 0 else rounded_preference(2.0 - preference)
    return Label(sample_id="", winner=winner_by_preference(first_better), preference=first_better)


def llmbar_label(row: Row, with_reference: bool) -> Label | None:
    """Read LLMBar's `label`: 1 or 2."""
    return None if is_missing(row.data.get("label")) else Label(sample_id="", winner=winner_field(row, "label"))


def plain_label(row: Row, with_reference: bool) -> Label | None:
    """Read the label of a pair, the `score` of one answer, or the `scores` of three or more answers.

    For a pair, `preference` in [0, 1] is P(first answer is better).
    """
    number = len(plain_answers(row))
    if number == 2:
        return _with_preference(row, plain_pair_label(row, with_reference))
    if row.has("winner"):
        raise row.field_error(
            "winner", f"a winner requires two answers, but the row has {number}; use one score per answer instead"
        )
    numbered = [f"score_{index}" for index in range(1, number + 1)]
    name = next((name for name in ("score", "scores") if row.has(name)), None)
    if name is not None:
        scores = row.numbers(name, number)
    elif any(row.has(name) for name in numbered):
        scores = tuple(row.number(name) for name in numbered)
    else:
        return None
    return Label(sample_id="", winner=None, scores=scores, reason=row.optional_text("reason") or None)


def plain_pair_label(row: Row, with_reference: bool) -> Label | None:
    """Read a pair's label from any documented field except `preference`.

    Fields are tried in this order: the `_w_reference` fields if `with_reference` is True; `winner`, scores, and the
    review in `text`; `annotator1`, ...; `label`; `g1_winner` and `g2_winner`.
    """
    if with_reference and (row.has("score_w_reference") or row.has("text_w_reference")):
        return _judgelm_review(row, True)
    label = _with_review(row, _named_winner(row))
    if label is None:
        return _voted(row)
    if label.scores == (-1.0, -1.0):
        return None
    return label if label.votes else replace(label, votes=_annotators(row))


def _with_review(row: Row, label: Label | None) -> Label | None:
    """As in JudgeLM, a score line that contradicts `scores` stays in the reason."""
    text = row.data.get("text")
    if not isinstance(text, str) or text.strip() in ("", "error"):
        return label
    written, reason = split_review(row.text("text", "text"))
    if label is None:
        return (
            None if written is None else Label(sample_id="", winner=winner_of(written), scores=written, reason=reason)
        )
    if label.scores is None and written is not None:
        if winner_of(written) != label.winner:
            raise row.field_error("text", f"its scores contradict the winner {label.winner}; correct one")
        label = replace(label, scores=written)
    return replace(label, reason=label.reason or (reason if written in (None, label.scores) else text) or None)


def _voted(row: Row) -> Label | None:
    if row.has("annotator1"):
        return pandalm_label(row, False)
    return llmbar_label(row, False) if row.has("label") else games_label(row)


def games_label(row: Row) -> Label | None:
    """Read FastChat's `g1_winner` and `g2_winner`: a tie if the orders disagree, or None if a game failed (`error`).

    Source: FastChat, `llm_judge/show_result.py`.
    """
    games = [row.data.get(name) for name in ("g1_winner", "g2_winner")]
    if None in games or "error" in games:
        return None
    first, second = winner_field(row, "g1_winner"), winner_field(row, "g2_winner")
    return Label(sample_id="", winner=first if first == second else "tie", votes=(first, second))


def _named_winner(row: Row) -> Label | None:
    scores = _plain_scores(row)
    reason = row.optional_text("reason") or None
    if not row.has("winner"):
        return None if scores is None else Label(sample_id="", winner=winner_of(scores), scores=scores, reason=reason)
    winner = winner_field(row)
    if scores is not None and winner_of(scores) != winner:
        raise row.error(f"winner {winner} contradicts the scores {scores[0]:g} and {scores[1]:g}; correct one")
    return Label(sample_id="", winner=winner, scores=scores, reason=reason, votes=_votes(row))


def _plain_scores(row: Row) -> tuple[float, float] | None:
    for name in ("score", "scores"):
        if row.has(name):
            return row.score_pair(name)
    for first, second in (("score_1", "score_2"), ("score_a", "score_b")):
        if row.has(first) or row.has(second):
            return row.number(first), row.number(second)
    return None


def any_label(row: Row, with_reference: bool) -> Label | None:
    """Read the label of a row without answers from any documented field.

    A `preference` strictly between 0 and 1 is P(first answer is better); other values are on AlpacaEval's scale.
    """
    if with_reference or row.data.get("text") is not None:
        return judgelm_label(row, with_reference)
    if row.data.get("annotator1") is not None:
        return pandalm_label(row, with_reference)
    if row.data.get("preference") is not None:
        soft = row.number("preference")
        return _with_preference(row, None) if 0 < soft < 1 else alpaca_eval_label(row, with_reference)
    if row.data.get("label") is not None:
        return llmbar_label(row, with_reference)
    label = plain_pair_label(row, with_reference)
    return None if label is not None and label.scores == (-1.0, -1.0) else label


_JUDGELM_PAIRS = Shape(name="JudgeLM-100K", needs=("question_id", "question_body", "answer1_body", "answer2_body"))
_REVIEWS = Shape(name="JudgeLM-100K's reviews", needs=("question_id", "text", "score"))
_REFERENCES = Shape(name="JudgeLM-100K's references", needs=("question_id", "reference"))
_PARTS = {"_gpt4_with_reference": "_w_reference", "_gpt4": ""}
"""Review file suffix -> suffix of its fields in a JudgeLM row."""

Joined = dict[str, dict[str, object]]
"""Question id -> fields to add to the pair."""


def load_judgelm(files: Sequence[str], on_reject: OnReject) -> Iterator[Entry]:
    """Read the training file, or the four files that make up the validation set."""
    joined: Joined = {}
    pairs = []
    for path in files:
        stem = Path(path).name.partition(".")[0]
        ending = next((ending for ending in _PARTS if stem.endswith(ending)), None)
        if ending is not None:
            _join(path, _REVIEWS, _PARTS[ending], joined, on_reject)
        elif stem.endswith("_references"):
            _join(path, _REFERENCES, "", joined, on_reject)
        else:
            pairs.append(path)
    make = partial(_judgelm_entry, joined=joined, is_validation=len(pairs) < len(files))
    for path in pairs:
        yield from convert_file(path, _JUDGELM_PAIRS, make, on_reject)


def _join(path: str, shape: Shape, suffix: str, joined: Joined, on_reject: OnReject) -> None:
    def join(row: Row, row_number: int) -> None:
        name = row.required_id("question_id", f"{shape.name.rpartition(' ')[2]} cannot be joined without it")
        joined.setdefault(name, {}).update({f"{field}{suffix}": row.data[field] for field in shape.needs[1:]})

    deque(convert_file(path, shape, join, on_reject), maxlen=0)


def _judgelm_entry(row: Row, row_number: int, *, joined: Joined, is_validation: bool) -> Entry:
    name = row.required_id("question_id", "it identifies the pair")
    data = {key: value for key, value in row.data.items() if not is_validation or key not in ("score", "text")}
    whole = row.with_data(data | joined.get(name, {}))
    sample = judgelm_sample(whole)
    plain = judgelm_label(whole, False)
    referenced = None if sample.reference is None else judgelm_label(whole, True)
    if plain is None and referenced is None:
        raise row.error("no parseable judgment, with or without the reference; remove the row")
    pair = LabelledPair(sample=sample, plain=plain, referenced=referenced, source="judgelm-100k")
    return Entry({key: value for key, value in judgelm_row(pair).items() if key not in ("swapped", "epoch")})


_PAIRS = Source(name="plain", sample=plain_sample, label=plain_label, code=PAIR_CODE, soft="probability")
SOURCES = (
    replace(_PAIRS, name="judgelm", sample=judgelm_sample, label=judgelm_label, load=load_judgelm),
    Source(name="pandalm_train", sample=pandalm_train_sample, label=pandalm_train_label),
    Source(name="alpaca_eval_outputs", sample=no_sample),
    _PAIRS,
)
_LABEL_CODE = (FieldCode(fields=("winner", "votes", "label")), FieldCode(fields=("annotator*",), values=ZERO_IS_TIE))
LABELS = with_stated_fields(Source(name="labels", sample=label_alone, label=any_label, code=_LABEL_CODE))
"""Rows that contain only an id and a label; the samples are in a different file."""
