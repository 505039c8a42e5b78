"""Published benchmarks and tables with odd rows: counts add up, errors name file and line, a refusal leaves nothing."""

import gzip
import json

import pytest
from hypothesis import strategies as st

from benchmarks.convert import join_reviews
from benchmarks.seeds import read_seeds
from judgelm.data.answers import AnswerSet, read_questions
from judgelm.data.readers.files import read_rows
from judgelm.data.readers.rows import Reject
from judgelm.data.samples import read_references
from judgelm.data.sources.alpaca_eval import join_outputs
from judgelm.data.sources.importer import import_benchmark
from judgelm.data.sources.qa import qa_row, read_qa
from judgelm.data.sources.rating_tables import RatingColumns, read_ratings
from judgelm.data.sources.reviews import match_orders, read_results, read_reviews
from judgelm.parsing.scores import parse_pair
from judgelm.runs.answers import read_self_answers
from judgelm.studies.truth_file import AnswerTruth, PairTruth, truth_from_row
from tests.support import fuzzing

TEXTS = fuzzing.texts("a", "8 6\nx", "gpt-4", "Human: ", "\n", " ", "NA", "n/a: x", "[[A]]", "1", "#### 18")
IDS = st.sampled_from((1, 2, "1", "a", 2.0, ""))
SCORES = st.sampled_from(([8, 6], [-1, -1], "8 6", 8, "7.5", "NA", None, 10**400, "1" * 500, float("nan")))
LONG = {
    **dict.fromkeys(("item", "annotator"), IDS),
    **dict.fromkeys(("dimension", "check"), TEXTS),
    **dict.fromkeys(("score", "length"), SCORES),
    "judge": st.sampled_from(("human", "gold", "a", "b")),
    "model": st.sampled_from(("a", "b")),
}
WIDE = {
    **dict.fromkeys(("gt", "rating", "pred_length"), SCORES), "judge": TEXTS, "model": st.sampled_from(("gpt-4o", "b")),
    "prompt_id": IDS, "dataset": st.sampled_from(("cnn", "x")),
}  # fmt: skip
QUESTIONS = {"question_id": IDS} | dict.fromkeys(("text", "category", "question", "reference"), TEXTS)
ANSWERS = {
    **dict.fromkeys(("answer_id", "question_id"), IDS),
    **dict.fromkeys(("text", "model_id", "model", "instruction", "output", "generator"), TEXTS),
    "finish_reason": st.sampled_from(("stop", "length")),
    "failure": st.none(),
}
REVIEWS = {"review_id": IDS, "question_id": IDS, "answer1_id": IDS, "answer2_id": IDS, "text": TEXTS, "score": SCORES}
RESULTS = {
    "id": IDS,
    **dict.fromkeys(("pred_text", "reference"), TEXTS),
    "gpt_result": st.sampled_from((0, 1, 2, "Tie", "3", True)),
    "solves": st.lists(st.fixed_dictionaries({"text": TEXTS}, optional={"answer": TEXTS}), max_size=2),
}
TRUTHS = {
    "id": st.text(max_size=2),
    **dict.fromkeys(("agent", "dataset", "question", "answer"), TEXTS),
    "truth": st.booleans(),
    "judge_correct": st.booleans() | st.dictionaries(TEXTS, st.booleans(), max_size=2),
    "winner": st.sampled_from((1, 2)),
}
SPANS = st.lists(TEXTS, max_size=2)
DROP_ANSWERS = st.fixed_dictionaries({}, optional={"number": TEXTS, "spans": SPANS, "date": st.just({"day": "1"})})
QA = {
    "_id": IDS,
    **dict.fromkeys(("question", "pred_answer"), TEXTS),
    "answer": TEXTS | DROP_ANSWERS,
    "answers": SPANS.map(lambda texts: [{"text": one} for one in texts]) | st.fixed_dictionaries({"text": SPANS}),
    "validated_answers": SPANS,
    "context": TEXTS | st.lists(st.tuples(TEXTS, SPANS), max_size=2) | st.fixed_dictionaries({"title": SPANS}),
    "answer_type": st.sampled_from(("number", "Person", "x")),
}
MESSAGES = st.fixed_dictionaries({"from": st.sampled_from(("human", "gpt", "system")), "value": TEXTS})
SEEDS = dict.fromkeys(("instruction", "input", "output", "context", "response", "prompt", "source"), TEXTS)
SEEDS["conversations"] = st.lists(MESSAGES, max_size=3)


@pytest.fixture
def place(tmp_path):
    """A file of JSON lines of these rows, under one name again and again."""

    def write(name, rows):
        path = tmp_path / name
        path.write_bytes(fuzzing.json_lines(rows))
        return str(path)

    return write


def table(fields):
    return st.lists(fuzzing.rows(fields), max_size=4)


def test_ratings(fuzz, place):
    def check(given):
        rows, extra = given
        path, found = place("ratings.jsonl", rows), []
        columns = RatingColumns(extra=("length",) if extra else ())
        if fuzzing.refusal(lambda: found.append(read_ratings([path], columns)), path, "ratings") is None:
            [table] = found
            assert table.frame["score"].dtype == float
            assert len(table.frame) + len(table.rejects) >= len(rows)
            assert len(table.frame) + len(table.rejects) <= 2 * len(rows)

    fuzz(st.tuples(table(LONG) | table(WIDE) | table(LONG | WIDE), st.booleans()), check)


def test_joined_tables(fuzz, place):
    def check(given):
        questions, answers, reviews = given
        paths = [place(f"{name}.jsonl", rows) for name, rows in zip("qar", given, strict=True)]
        joined = []
        if fuzzing.refusal(lambda: joined.extend(join_reviews(paths[0], [paths[1]], [paths[2]])), *paths) is None:
            assert len(joined) == len(reviews)
        both = []
        if fuzzing.refusal(lambda: both.append(match_orders(read_reviews(paths[2]))), paths[2]) is None:
            [(pairs, alone)] = both
            assert 2 * len(pairs) + len(alone) == len(reviews)
        found = []
        if fuzzing.refusal(lambda: found.extend(join_outputs(paths[1], paths[0])), *paths) is None:
            rejects = sum(isinstance(one, Reject) for one in found)
            assert 2 * (len(found) - rejects) + rejects == len(questions) + len(answers)
        fuzzing.refusal(lambda: AnswerSet([paths[1]]).left_out, paths[1])
        rejects = []
        if fuzzing.refusal(lambda: found.append(read_questions(paths[0], on_reject=rejects.append)), paths[0]) is None:
            assert len(found[-1]) + len(rejects) == len(questions)

    fuzz(st.tuples(table(QUESTIONS | {"instruction": TEXTS, "output": TEXTS}), table(ANSWERS), table(REVIEWS)), check)


def test_lone_tables(fuzz, place):
    def check(given):
        results, truths, questions, seeds = given
        path, rejects, found = place("results.jsonl", results), [], []
        reading = lambda: found.extend(read_results(path, parse_pair, on_reject=rejects.append))  # noqa: E731
        if fuzzing.refusal(reading, path) is None:
            assert len(found) + len(rejects) == len(results)
        for read in (read_self_answers, read_references):
            fuzzing.refusal(lambda read=read: read(path), path)
        for number, row in enumerate(truths, 1):
            for kind in (AnswerTruth, PairTruth):
                fuzzing.refusal(lambda kind=kind: truth_from_row(kind, row, f"t.jsonl:{number}"), f"t.jsonl:{number}")  # noqa: B023
        check_qa(place("qa.json", questions), len(questions))
        path, found = place("seeds.jsonl", seeds), []
        if fuzzing.refusal(lambda: found.extend(read_seeds(path)), path) is None:
            assert len(found) == len(seeds)

    fuzz(st.tuples(table(RESULTS), table(TRUTHS), table(QA), table(SEEDS)), check)


def check_qa(path, count):
    rejects, found = [], []
    if fuzzing.refusal(lambda: found.extend(read_qa(path, on_reject=rejects.append)), path) is None:
        assert len(found) + len(rejects) == count
    for one in found:
        json.dumps(qa_row(one), ensure_ascii=False).encode()


WORDING = fuzzing.texts(
    "a", "#### 18", "The answer is (B).", "<AND>", "<OR>", "expert_0", "gpt-4", " ", "\n", "<IMG>x.png<IMG>"
)
NAMES = st.sampled_from(("a", "b", "gpt-4"))
KEYS = st.sampled_from((1, 2, "1", "x"))
SOLUTION = st.fixed_dictionaries({"solution": WORDING}, optional={"is_correct": st.booleans()})
CHOICES = st.lists(st.fixed_dictionaries({"turns": st.lists(WORDING, max_size=3)}), max_size=2)
WORDS = (
    *("source", "question", "scenario", "prompt", "response 1", "response 2", "instruction", "input", "output_1"),
    *("output_2", "response1", "response2", "response_A", "response_B", "text", "subset", "ground_truth", "context"),
)
PEOPLE = ("model_a", "model_b", "model_id", "judge", "chosen_model", "rejected_model", "imagename")
OUTPUT = WORDING | st.fixed_dictionaries({"text": WORDING}, optional={"l2": NAMES})
FIELDS = {
    **dict.fromkeys(WORDS, WORDING), **dict.fromkeys(("id", "idx", "_id", "question_id", "pair_id", "answer_id"), KEYS),
    **dict.fromkeys(PEOPLE, NAMES), "label": st.sampled_from((0, 1, 2, "A", "B", "A>B", "B>A")),
    "winner": st.sampled_from(("model_a", "model_b", "tie", "tie (bothbad)")),
    "answer": WORDING | st.sampled_from(("A", "B", "C")), "options": st.lists(WORDING, max_size=4),
    "model_outputs": WORDING,
    "outputs": st.dictionaries(NAMES, OUTPUT, max_size=2), "turns": st.lists(WORDING, min_size=1, max_size=3),
    "turn": st.integers(0, 3), "choices": CHOICES, "chosen": WORDING | st.lists(WORDING, max_size=2),
    "rejected": WORDING | st.lists(WORDING, max_size=2),
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


def test_imports(fuzz, place, tmp_path):
    out = tmp_path / "out"
    out.mkdir()

    def check(given):
        name, tables = given
        for old in out.iterdir():
            old.unlink()
        files = [place(f"in{number}.jsonl", rows) for number, rows in enumerate(tables)]
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
    drop = {"question": "q", "query_id": "1", "answer": {"number": "3"}}
    quoref = {"context": "c", "qas": [{"question": "q", "id": "1", "answers": [{"text": "a"}]}]}
    mm_vet = {"imagename": "v.png", "question": "x?", "answer": "1<OR>2", "capability": ["ocr"]}
    values = {
        "drop": {"p1": {"passage": "text", "qa_pairs": [drop]}},
        "quoref": {"data": [{"paragraphs": [quoref]}]},
        "mm-vet": {"v1_0": mm_vet},
    }

    def check(given):
        name, content, zipped = given
        path = tmp_path / ("in.json.gz" if zipped else "in.json")
        path.write_bytes(gzip.compress(content, 1) if zipped == "whole" else content)
        fuzzing.refusal(lambda: import_benchmark(name, [str(path)], tmp_path / "out.jsonl", overwrite=True), path, name)

    def files(name):
        damaged = fuzzing.mangled(st.just(json.dumps(values[name]).encode()))
        altered = fuzzing.altered(st.just(values[name])).map(lambda value: json.dumps(value).encode())
        return st.tuples(st.just(name), damaged | altered, st.sampled_from((None, "whole", "damaged")))

    fuzz(st.sampled_from(sorted(values)).flatmap(files), check)
