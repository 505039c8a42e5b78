"""Judgments that other programs made, read as `Judgment`s so that the same metrics apply to them."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from operator import attrgetter

from judgelm.data.formats.catalog import detect_format
from judgelm.data.formats.labels import split_review
from judgelm.data.readers.fields import describe, field_error, row_error, row_id, text_field
from judgelm.data.readers.files import read_rows
from judgelm.data.readers.rejects import OnReject, convert_rows, raise_reject, unique
from judgelm.data.readers.rows import Row
from judgelm.data.text_hashes import text_hashes
from judgelm.errors import InputError
from judgelm.modes.pairwise import winner_of
from judgelm.records import Judgment, PairVerdict, Scores, Shown, TextHashes, Unparsed, Winner

Parser = Callable[[str], Scores | Unparsed]

_NEEDS = "an id and pred_text, gpt_result or pandalm_result"
_PANDALM_RESULTS: dict[str, Winner] = {"0": "tie", "tie": "tie", "1": 1, "2": 2}


def read_results(
    path: str, parser: Parser, *, fallback: Parser | None = None, on_reject: OnReject = raise_reject
) -> list[Judgment]:
    """Judgments from JudgeLM outputs (`pred_text`) or PandaLM's released ones (`gpt_result`, `pandalm_result`).

    One order only, so `consistent` stays None. A reply that says nothing readable is a failure `off_grammar`,
    never a tie.

    Args:
        path: the file.
        parser: reads a `pred_text`; a `score` in the same row is the teacher's and is left alone.
        fallback: reads a `pred_text` that `parser` cannot; what it reads is marked `Shown.read_anywhere`.
        on_reject: called with each row that cannot be used. By default the first one is raised as an error.

    Raises:
        InputError: the file cannot be read, or holds neither kind of result.
    """
    read = unique(lambda row: _judgment(row, parser, fallback), attrgetter("sample_id"))
    return list(convert_rows(read_rows(path), read, path=path, expected=_NEEDS, on_reject=on_reject))


def _judgment(row: Row, parser: Parser, fallback: Parser | None) -> Judgment:
    name = row_id(row, ("question_id", "idx", "id", "review_id"))
    if name is None:
        raise row_error(row, "no id; a result needs question_id, idx or id")
    return replace(_verdict(row, name, parser, fallback), hashes=_hashes(row))


def _hashes(row: Row) -> TextHashes | None:
    """Of the texts judged, where the row holds them."""
    with suppress(InputError):
        sample = detect_format(row, label_rows=True).sample(row)
        return text_hashes(sample) if sample.answers else None
    return None


def _verdict(row: Row, name: str, parser: Parser, fallback: Parser | None) -> Judgment:
    if "pred_text" in row.data:
        text = text_field(row, "pred_text", "pred_text")
        judgment = _from_reply(name, text, parser)
        if judgment.failure is None or fallback is None:
            return judgment
        second = _from_reply(name, text, fallback)
        return replace(
            second, shown=tuple(replace(reply, read_anywhere=second.failure is None) for reply in second.shown)
        )
    field = next((field for field in row.data if field.endswith("_result")), None)
    if field is None:
        raise row_error(row, f"no result; expected pred_text, gpt_result or pandalm_result among {', '.join(row.data)}")
    return _from_result(row, name, field)


def _from_reply(name: str, text: str, parser: Parser) -> Judgment:
    parsed = parser(text)
    if isinstance(parsed, Unparsed):
        return _failed(name, text, parsed)
    if len(parsed.values) != 2:
        return _failed(name, text, Unparsed("off_grammar", text, f"expected 2 scores, got {len(parsed.values)}"))
    scores = (parsed.values[0], parsed.values[1])
    return Judgment(
        sample_id=name,
        mode="pair",
        verdict=PairVerdict(winner=winner_of(scores)),
        shown=(Shown(order=(0, 1), text=text, scores=scores, reason=split_review(text)[1] or None),),
        scores=scores,
    )


def _failed(name: str, text: str, failure: Unparsed) -> Judgment:
    shown = Shown(order=(0, 1), text=text, failure=failure)
    return Judgment(sample_id=name, mode="pair", verdict=None, shown=(shown,), failure=failure)


def _from_result(row: Row, name: str, field: str) -> Judgment:
    value = row.data[field]
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise field_error(row, field, f'expected 1, 2, "Tie" or 0, got {describe(value)}')
    text = str(value)
    winner = _PANDALM_RESULTS.get(text.strip().lower())
    if winner is None:
        return _failed(name, text, Unparsed("off_grammar", text, "neither 1, 2 nor a tie"))
    reason = row.data.get(f"{field.removesuffix('_result')}_reason")
    reason = reason if isinstance(reason, str) and reason else None
    return Judgment(
        sample_id=name,
        mode="pair",
        verdict=PairVerdict(winner=winner),
        shown=(Shown(order=(0, 1), text=text, reason=reason),),
    )
