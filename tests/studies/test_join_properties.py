"""No order, duplication or renaming of rows changes an agreement without an error or a note."""

from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given
from hypothesis import strategies as st

from judgelm.data.judged_texts import text_hashes
from judgelm.data.labelled_set import match_labels, read_labels
from judgelm.errors import InputError
from judgelm.metrics.resampling import Resampling
from judgelm.records import Sample
from judgelm.runs.run_files import read_judgments
from judgelm.studies.evaluation import EvaluationOptions, evaluate
from tests.support.judged_items import write_run
from tests.support.studies import judged_pair, write_rows

WINNERS = st.sampled_from((1, 2, "tie"))
MIRRORED = {1: 2, 2: 1, "tie": "tie"}
HOW = EvaluationOptions(resampling=Resampling(resamples=10))
PAIRS = st.lists(st.tuples(WINNERS, st.lists(WINNERS, min_size=1, max_size=3)), min_size=1, max_size=5)
"""Of each pair the judge's verdict, and people's votes."""


def sample_of(index):
    return Sample(id=f"p{index}", question=f"q{index % 2}", answers=(f"good {index}", f"bad {index}"))


def judgment_of(index, winner):
    sample = sample_of(index)
    return judged_pair(sample.id, winner, shown=(), hashes=text_hashes(sample))


def label_row(index, winner, exchanged=False):
    sample = sample_of(index)
    first, second = sample.answers[::-1] if exchanged else sample.answers
    winner = MIRRORED[winner] if exchanged else winner
    return {"id": sample.id, "question": sample.question, "answer_1": first, "answer_2": second, "winner": winner}


def agreement_by_hand(pairs):
    """Hits and number of the pairs whose votes have a majority."""
    hits = []
    for verdict, votes in pairs:
        winner, count = Counter(votes).most_common(1)[0]
        if 2 * count > len(votes):
            hits.append(verdict == winner)
    return sum(hits), len(hits)


def agreement(judgments, rows):
    """Hits, number and all notes, as `judgelm eval` reads the files."""
    with TemporaryDirectory() as folder:
        labels = write_rows(Path(folder) / "labels.jsonl", rows)
        run = read_judgments(write_run(Path(folder) / "run.jsonl", judgments))
        labelled, texts = match_labels(run, read_labels(str(labels)), name="labels.jsonl")
        result = evaluate(run, labelled.labels, split=labelled.split, options=HOW)
    notes = [*labelled.notes(), *texts.notes()]
    if result.counts.labels_without_judgment:
        notes.append("labels without a judgment")
    accuracy = result.as_tie.accuracy
    return round(accuracy.value * accuracy.n), accuracy.n, notes


@given(pairs=PAIRS, data=st.data())
def test_order_exchange_and_duplication_of_rows_change_nothing(pairs, data):
    hits, count = agreement_by_hand(pairs)
    judgments = [judgment_of(index, verdict) for index, (verdict, _) in enumerate(pairs)]
    votes = [(index, vote) for index, (_, pair_votes) in enumerate(pairs) for vote in pair_votes]
    if data.draw(st.booleans(), label="the whole file twice"):
        votes *= 2
    rows = data.draw(st.permutations([label_row(*vote, exchanged=data.draw(st.booleans())) for vote in votes]))
    run = data.draw(st.permutations(judgments * data.draw(st.integers(1, 2))))
    try:
        result = agreement(run, rows)
    except InputError:  # no judgment has a label
        result = (0, 0, [])
    assert result[:2] == (hits, count)


@given(pairs=PAIRS, data=st.data())
def test_a_renamed_or_repeated_row_is_refused_or_noted_where_it_changes_the_agreement(pairs, data):
    expected = agreement_by_hand(pairs)
    judgments = [judgment_of(index, verdict) for index, (verdict, _) in enumerate(pairs)]
    rows = [label_row(index, vote) for index, (_, pair_votes) in enumerate(pairs) for vote in pair_votes]
    index = data.draw(st.integers(0, len(rows) - 1))
    names = st.sampled_from([*(sample_of(other).id for other in range(len(pairs))), "unknown"])
    if data.draw(st.booleans(), label="rename"):
        rows[index] = rows[index] | {"id": data.draw(names)}
    else:
        rows.append(rows[index] | {"id": data.draw(names)})
    try:
        hits, count, notes = agreement(judgments, rows)
    except InputError:
        return
    assert (hits, count) == expected or notes
