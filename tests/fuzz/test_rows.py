"""Rows of every format with odd values: each becomes a sample, a label or a reject, and the counts add up."""

import json
from functools import partial

from hypothesis import strategies as st

from judgelm.data.labelled_pair import judgelm_row
from judgelm.data.labelled_set import read_labelled, read_labels
from judgelm.data.samples import SampleStream
from judgelm.data.sources.registry import SOURCES
from tests.support import fuzzing

TEXTS = fuzzing.texts("a", "8 6\nbecause", "\n\nHuman: ", "\n\nAssistant: ", "error", "Assistant 1", " ", "\n", "[[A]]")
SCORES = st.sampled_from(([8, 6], [-1, -1], [1e999, 2], "8 6", "[8, 6]", "8", 8, 7.5, [8, 6, 5], [10**400, 1]))
TURNS = st.lists(st.sampled_from(("user", "assistant", "system", "human", "gpt")), max_size=4).map(
    lambda roles: [{"role": role, "content": "x"} for role in roles]
)
DIALOGUES = st.one_of(TURNS, TURNS.map(json.dumps), TEXTS)
GAMES = st.sampled_from(("model_1", "model_2", "tie", "error"))
WON = st.sampled_from((0, 1, "0", "1", True, False, None))
ANSWERS = st.lists(TEXTS, max_size=4)
OTHERS = {
    "id": st.integers(0, 3) | st.sampled_from(("1", "a", 2.0, "")),
    **dict.fromkeys(("question_id", "turn"), st.integers(0, 3)),
    **dict.fromkeys(
        ("category", "text", "text_w_reference", "answer_3", "input", "system", "model_a", "model_b"), TEXTS
    ),
    **dict.fromkeys(("score", "scores", "score_w_reference", "score_chosen", "score_rejected"), SCORES),
    **dict.fromkeys(("score_1", "score_2"), st.integers(0, 11)),
    **dict.fromkeys(("winner_model_a", "winner_model_b", "winner_tie"), WON),
    **dict.fromkeys(("annotator1", "annotator2"), st.integers(-1, 3)),
    **dict.fromkeys(("g1_winner", "g2_winner"), GAMES),
    **dict.fromkeys(("answers", "answer_models", "images"), ANSWERS),
    "reference": TEXTS | st.just({"text": "r"}),
    "metadata": st.dictionaries(st.text(max_size=4), fuzzing.JUNK, max_size=2),
    "winner": st.sampled_from((1, 2, "1", "tie", "model_a", "A", "tie (bothbad)", True)),
    "votes": st.lists(st.sampled_from((1, 2, "tie")), max_size=3),
    "preference": st.sampled_from((0, 1, 0.3, 0.5, 1.5, 2, 3, float("nan"), "0.7", True, [1])),
    "label": st.sampled_from((1, 2, "A", "B", "tie")),
    "prompt": DIALOGUES,
    "cmp_key": st.sampled_from(("a_b", "a", "a_b_c")),
}
NESTED = st.fixed_dictionaries(
    {"question": TEXTS, "answers": st.lists(TEXTS, max_size=3)}, optional={"reference": TEXTS}
)
SIDE = st.fixed_dictionaries({"instruction": TEXTS, "response1": TEXTS, "response2": TEXTS})
NEEDED = {
    **dict.fromkeys(("chosen", "rejected", "conversation_a", "conversation_b"), DIALOGUES),
    "turns": st.lists(NESTED, max_size=3),
    "inputs": SIDE,
    "outputs": st.fixed_dictionaries({}, optional={"evaluation_result": OTHERS["winner"], "evaluation_reason": TEXTS}),
}
FORMATS = [
    *(each.needs for each in SOURCES.values() if each.needs and each.sample),
    ("id", "winner"),
    ("question_id", "score"),
]


@st.composite
def files(draw):
    """Rows of one format, mostly with all that it needs and some of what it may have."""
    needs = draw(st.sampled_from(FORMATS))
    needed = {name: NEEDED.get(name, OTHERS.get(name, TEXTS)) for name in needs}
    row = st.tuples(fuzzing.rows(OTHERS), st.fixed_dictionaries(needed), fuzzing.rows(needed))
    return draw(st.lists(row.map(lambda three: three[0] | (three[1] if len(three[0]) % 4 else three[2])), max_size=5))


def test_samples_and_labels(fuzz, tmp_path):
    path = tmp_path / "in.jsonl"

    def check(rows):
        path.write_bytes(fuzzing.json_lines(rows))
        check_samples(path, rows)
        check_labels(path, rows)

    fuzz(files(), check)


def check_samples(path, rows):
    rejects, samples = [], []

    def read():
        stream = SampleStream([str(path)], on_reject=rejects.append)
        samples.extend(stream)
        assert (stream.read, stream.rejected) == (len(rows), len(rejects))

    if fuzzing.refusal(read, path) is None:
        assert len(samples) + len(rejects) == len(rows)
        assert len({one.id for one in samples}) == len(samples)
        for one in samples:
            json.dumps([one.id, one.question, one.answers, one.reference], ensure_ascii=False).encode()
    assert all(one.message.startswith(f"{path}:{one.line}: ") for one in rejects)


def check_labels(path, rows):
    for with_reference in (False, True):
        rejects, found = [], []
        reading = partial(read_labels, str(path), with_reference=with_reference, on_reject=rejects.append)
        if fuzzing.refusal(lambda: found.append(reading()), path) is None:  # noqa: B023
            assert len(found[0].labels) + found[0].unlabelled + len(rejects) == len(rows)
    rejects, pairs = [], []
    reading = lambda: pairs.extend(read_labelled(str(path), source="s", on_reject=rejects.append))  # noqa: E731
    if fuzzing.refusal(reading, path) is None:
        assert len(pairs) + len(rejects) == len(rows)
        for pair in pairs:
            written = judgelm_row(pair)
            path.write_bytes(fuzzing.json_lines([written]))
            [again] = read_labelled(str(path), source="s")
            assert judgelm_row(again) == written, "what is written is read back as something else"
