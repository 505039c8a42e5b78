"""Judgments and run files made by hand, for what is shown of them."""

from judgelm.records import Judgment, PairVerdict, Sample, Shown, Unparsed
from judgelm.serialization import judgment_row
from judgelm.serving.web.runs import OpenRun
from tests.support.jsonl_files import write_rows

TAKE_OVER = "<img src=x onerror=\"window.taken='image'\"><script>window.taken='script'</script> ${window.taken=1} {{x}}"
"""Runs if a page takes it for HTML, or evaluates it as a template."""


def pair_judgment(key, winner, *, scores=None, swapped=None, reason=None):
    """A judgment of a pair."""
    consistent = None
    shown = [Shown(order=(0, 1), text="8 6", scores=scores or (8.0, 6.0), reason=reason)]
    if swapped is not None:
        shown.append(Shown(order=(1, 0), text="x", scores=swapped))
        first, second = shown[0].scores, swapped[::-1]
        consistent = (first[0] > first[1]) == (second[0] > second[1])
    return Judgment(
        sample_id=key, mode="pair", verdict=PairVerdict(winner=winner), shown=tuple(shown), scores=(8.0, 6.0),
        consistent=consistent,
    )  # fmt: skip


def failed_judgment(key, code="off_grammar"):
    failure = Unparsed(code, "I cannot say", "no score line")
    shown = (Shown(order=(0, 1), text="I cannot say", failure=failure),)
    return Judgment(sample_id=key, mode="pair", verdict=None, shown=shown, failure=failure)


def pair_sample(key, **fields):
    given = {"question": f"question {key}", "answers": (f"first {key}", f"second {key}")} | fields
    return Sample(id=key, **given)


def write_run(path, judgments):
    return write_rows(path, map(judgment_row, judgments))


def write_pairs(path, samples):
    rows = [
        {
            "id": one.id, "question": one.question, "answer_1": one.answers[0], "answer_2": one.answers[1],
            "reference": one.reference, "category": one.category,
        }
        for one in samples
    ]  # fmt: skip
    return write_rows(path, rows)


def run_of(*judgments, samples=(), name="run.jsonl"):
    """An open run of these judgments."""
    return OpenRun(
        name=name, judgments={each.sample_id: each for each in judgments}, samples={each.id: each for each in samples}
    )
