"""Files of rows, whatever the bytes: rows, samples, labels and rejects that add up, or an error that names the file."""

import bz2
import csv
import gzip
import io
import json
import lzma
import os
from functools import partial

import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import strategies as st

from judgelm.data.labelled_pair import judgelm_row
from judgelm.data.labelled_set import read_labelled, read_labels
from judgelm.data.readers.files import read_rows
from judgelm.data.readers.rows import Reject, Row
from judgelm.data.samples import SampleStream
from judgelm.data.sources.registry import SOURCES
from tests.support import fuzzing

TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=12)
VALUES = st.none() | st.booleans() | st.integers(-(10**18), 10**18) | TEXT | st.lists(TEXT, max_size=3)
TABLES = st.lists(st.dictionaries(TEXT, VALUES, max_size=4), min_size=1, max_size=6)
CELLS = st.lists(st.lists(TEXT.filter(lambda text: "\0" not in text), min_size=2, max_size=2), min_size=1, max_size=6)


@pytest.fixture
def place(tmp_path):
    """A file of a given name and content, which replaces the one before."""

    def write(name, content):
        path = tmp_path / name
        path.write_bytes(gzip.compress(content, 1) if name.endswith(".gz") else content)
        return str(path)

    return write


def lines(some):
    return b"".join(json.dumps(one, ensure_ascii=False).encode() + b"\n" for one in some)


def table(cells, delimiter):
    out = io.StringIO()
    csv.writer(out, delimiter=delimiter).writerows([["a", "b"], *cells])
    return out.getvalue().encode()


def parquet(cells):
    out = pyarrow.BufferOutputStream()
    columns = {name: [row[place] for row in cells] for place, name in enumerate("ab")}
    pyarrow.parquet.write_table(pyarrow.table(columns), out)
    return out.getvalue().to_pybytes()


WHOLE = st.one_of(
    st.tuples(st.sampled_from(("a.jsonl", "a.ndjson", "a.jsonl.gz")), TABLES.map(lines)),
    st.tuples(st.sampled_from(("a.json", "a", "a.json.gz")), TABLES.map(partial(json.dumps, indent=1)).map(str.encode)),
    st.tuples(st.just("a.csv"), CELLS.map(lambda cells: table(cells, ","))),
    st.tuples(st.just("a.tsv.gz"), CELLS.map(lambda cells: table(cells, "\t"))),
    st.tuples(st.just("a.parquet"), CELLS.map(parquet)),
)
ANY = fuzzing.texts(
    *("[", "]", "{", "}", ",", ":", '"', "\\", "\n", "\r\n", "\r", "\t", " ", '{"a": 1}', '{"a":"', "null", "1"),
    *("1e999", "\\ud83d", "\u2028", "\x00", "\x1a", "é", '""', '"a\nb"', "NaN", "PAR1", "0" * 5000, "a,b", ";"),
).map(lambda text: text.encode(errors="surrogatepass"))
NAMES = ("a.jsonl", "a.json", "a.csv", "a.tsv", "a.parquet", "a.json.gz", "a.csv.gz", "a")


def check_rows(path, content):
    found = []
    message = fuzzing.refusal(lambda: found.extend(read_rows(path)), path)
    assert message is not None or found, "neither a row nor an error"
    assert all(isinstance(one, Row | Reject) and one.file == path and one.line >= 1 for one in found)
    numbers = [one.line for one in found]
    assert numbers == sorted(numbers)
    assert all(
        one.reason and one.message.startswith(f"{path}:{one.line}: ") for one in found if isinstance(one, Reject)
    )
    if path.endswith((".jsonl", ".ndjson")) and message is None:
        given = content.removeprefix(b"\xef\xbb\xbf").split(b"\n")
        assert len(found) == sum(1 for line in given if line.strip()), "a line is lost or doubled"
    return found, message


def test_damaged_files(fuzz, place):
    def check(given):
        name, content = given
        path = place(name, content)
        if name.endswith(".gz"):
            with open(path, "rb") as file:
                content = file.read()
            if len(content) % 3 == 0:  # the damage is to the compressed bytes
                with open(path, "wb") as file:
                    file.write(content[: len(content) // 2] + os.urandom(1) + content[len(content) // 2 + 1 :])
        check_rows(path, content)

    damaged = WHOLE.flatmap(lambda one: st.tuples(st.just(one[0]), fuzzing.mangled(st.just(one[1]))))
    fuzz(damaged | st.tuples(st.sampled_from(NAMES), ANY | st.binary(max_size=60)), check)


PACK = {
    "a.jsonl.gz": lambda content: gzip.compress(content, 1),
    "a.jsonl.bz2": bz2.compress,
    "a.jsonl.xz": lzma.compress,
    "a.jsonl.zst": lambda content: pyarrow.compress(content, codec="zstd", asbytes=True),
}


def test_compressed_files(fuzz, place):
    """Damaged compression is an error or harmless: it never ends a file in silence, and never changes a row."""

    def check(given):
        name, objects, packed = given
        path = place(name.removesuffix(".gz"), packed)
        if name.endswith(".gz"):
            os.replace(path, path := f"{path}.gz")
        found, message = check_rows(path, packed)
        if message is None and not name.endswith(".zst"):  # pyarrow writes its frames without a checksum
            assert found
            assert [one.data for one in found] == objects * (len(found) // len(objects))

    packed = st.tuples(st.sampled_from(sorted(PACK)), TABLES).flatmap(
        lambda two: st.tuples(st.just(two[0]), st.just(two[1]), fuzzing.mangled(st.just(PACK[two[0]](lines(two[1])))))
    )
    fuzz(packed, check)


def test_whole_files(fuzz, place):
    """Every row comes back as it was written, in every format."""

    def check(given):
        objects, cells = given
        for name, content in (
            ("a.jsonl", lines(objects)),
            ("a.jsonl", lines(objects).replace(b"\n", b"\r\n").removesuffix(b"\r\n")),
            ("a.jsonl.gz", lines(objects)),
            ("a.json", json.dumps(objects).encode()),
            ("a.json", b"\xef\xbb\xbf" + json.dumps(objects, ensure_ascii=False, indent=2).encode()),
        ):
            found, message = check_rows(place(name, content), content)
            assert message is None
            assert [one.data for one in found] == objects
        tables = {"a.csv": table(cells, ","), "a.tsv.gz": table(cells, "\t"), "a.parquet": parquet(cells)}
        for name, content in tables.items():
            found, message = check_rows(place(name, content), content)
            assert message is None
            assert [list(one.data.values()) for one in found] == cells

    fuzz(st.tuples(TABLES, CELLS), check)


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
    **dict.fromkeys(("category", "text", "text_w_reference", "answer_3"), TEXTS),
    **dict.fromkeys(("input", "system", "model_a", "model_b"), TEXTS),
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
FORMATS = [each.needs for each in SOURCES.values() if each.needs and each.sample]
FORMATS += [("id", "winner"), ("question_id", "score")]


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
