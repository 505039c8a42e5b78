"""Published benchmarks with odd rows: an import is whole and can be read again, or is refused and leaves nothing."""

import gzip
import json

import pytest
from hypothesis import strategies as st

from judgelm.data.readers.files import read_rows
from judgelm.data.sources.importer import import_benchmark
from tests.support import fuzzing

TEXTS = fuzzing.texts(
    "a", "#### 18", "The answer is (B).", "<AND>", "<OR>", "expert_0", "gpt-4", " ", "\n", "<IMG>x.png<IMG>"
)
NAMES = st.sampled_from(("a", "b", "gpt-4"))
IDS = st.sampled_from((1, 2, "1", "x"))
SOLUTION = st.fixed_dictionaries({"solution": TEXTS}, optional={"is_correct": st.booleans()})
CHOICES = st.lists(st.fixed_dictionaries({"turns": st.lists(TEXTS, max_size=3)}), max_size=2)
WORDS = (
    *("source", "question", "scenario", "prompt", "response 1", "response 2", "instruction", "input", "output_1"),
    *("output_2", "response1", "response2", "response_A", "response_B", "text", "subset", "ground_truth", "context"),
)
PEOPLE = ("model_a", "model_b", "model_id", "judge", "chosen_model", "rejected_model", "imagename")
OUTPUT = TEXTS | st.fixed_dictionaries({"text": TEXTS}, optional={"l2": NAMES})
FIELDS = {
    **dict.fromkeys(WORDS, TEXTS), **dict.fromkeys(("id", "idx", "_id", "question_id", "pair_id", "answer_id"), IDS),
    **dict.fromkeys(PEOPLE, NAMES), "label": st.sampled_from((0, 1, 2, "A", "B", "A>B", "B>A")),
    "winner": st.sampled_from(("model_a", "model_b", "tie", "tie (bothbad)")),
    "answer": TEXTS | st.sampled_from(("A", "B", "C")), "options": st.lists(TEXTS, max_size=4), "model_outputs": TEXTS,
    "outputs": st.dictionaries(NAMES, OUTPUT, max_size=2), "turns": st.lists(TEXTS, min_size=1, max_size=3),
    "turn": st.integers(0, 3), "choices": CHOICES, "chosen": TEXTS | st.lists(TEXTS, max_size=2),
    "rejected": TEXTS | st.lists(TEXTS, max_size=2),
    "capability": st.lists(st.sampled_from(("ocr", "math", "x")), max_size=3), "annotator1": st.integers(0, 2),
    "175b_verification": SOLUTION,
}  # fmt: skip
SHAPES = {
    "pandalm": ("instruction", "input", "response1", "response2", "annotator1", "idx"),
    "llmbar": ("input", "output_1", "output_2", "label"),
    "judgebench": ("pair_id", "source", "question", "response_A", "response_B", "label"),
    "auto-j": ("scenario", "label", "prompt", "response 1", "response 2"),
    "mt-bench": ("question_id", "turns", "choices", "model_id", "model_a", "model_b", "winner", "judge", "turn"),
    "rewardbench": ("id", "prompt", "chosen", "rejected", "chosen_model", "rejected_model", "subset"),
    "rewardbench-2": ("id", "prompt", "chosen", "rejected", "subset"),
    "gsm8k": ("question", "answer", "ground_truth", "175b_verification"),
    "mmlu-pro": ("question_id", "question", "options", "answer", "model_outputs", "outputs"),
    "mmlu-pro pairs": ("question_id", "model_a", "model_b", "label"),
    "hotpotqa": ("_id", "question", "answer", "context"),
    "mm-vet": ("id", "imagename", "question", "answer", "capability"),
}


@pytest.fixture
def place(tmp_path):
    """A file of rows under one name again and again, and a folder that is empty before each import."""
    out = tmp_path / "out"
    out.mkdir()

    def write(number, rows):
        for old in out.iterdir():
            old.unlink()
        path = tmp_path / f"in{number}.jsonl"
        path.write_bytes(fuzzing.json_lines(rows))
        return str(path)

    return write, out


def test_imports(fuzz, place):
    write, out = place

    def check(given):
        name, tables = given
        files = [write(number, rows) for number, rows in enumerate(tables)]
        done = []
        message = fuzzing.refusal(lambda: done.append(import_benchmark(name, files, out / "o.jsonl")), *files, name)
        if message is not None:
            assert not list(out.iterdir()), "a refused import left files behind"
            return
        rows = [json.loads(line) for line in (out / "o.jsonl").read_bytes().splitlines()]
        assert len(rows) == done[0].rows
        assert len({row["id"] for row in rows}) == len(rows)
        assert sum(1 for _ in read_rows(str(out / "o.jsonl"))) == len(rows)

    fuzz(imports(), check)


@st.composite
def imports(draw):
    """A benchmark's name, and the rows of one or two files in its shape."""
    shape = draw(st.sampled_from(sorted(SHAPES)))
    rows = fuzzing.rows({name: FIELDS[name] for name in SHAPES[shape]})
    return shape.split()[0], draw(st.lists(st.lists(rows, max_size=4), min_size=1, max_size=2))


def test_nested_files(fuzz, tmp_path):
    """One big JSON object, as DROP, Quoref and MM-Vet are published, zipped or not, damaged or not."""
    drop = {"p1": {"passage": "text", "qa_pairs": [{"question": "q", "query_id": "1", "answer": {"number": "3"}}]}}
    quoref = {
        "data": [{"paragraphs": [{"context": "c", "qas": [{"question": "q", "id": "1", "answers": [{"text": "a"}]}]}]}]
    }
    mm_vet = {"v1_0": {"imagename": "v.png", "question": "x?", "answer": "1<OR>2", "capability": ["ocr"]}}

    def check(given):
        name, content, zipped = given
        path = tmp_path / ("in.json.gz" if zipped else "in.json")
        path.write_bytes(gzip.compress(content, 1) if zipped == "whole" else content)
        fuzzing.refusal(lambda: import_benchmark(name, [str(path)], tmp_path / "out.jsonl", overwrite=True), path, name)

    values = {"drop": drop, "quoref": quoref, "mm-vet": mm_vet}
    fuzz(
        st.sampled_from(sorted(values)).flatmap(
            lambda name: st.tuples(
                st.just(name),
                fuzzing.mangled(st.just(json.dumps(values[name]).encode()))
                | fuzzing.altered(st.just(values[name])).map(lambda one: json.dumps(one).encode()),
                st.sampled_from((None, "whole", "damaged")),
            )
        ),
        check,
    )
