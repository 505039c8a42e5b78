"""Answer generators, and pairs of their answers: parsing, merging, drawing, and answers that are left out."""

from collections import Counter
from pathlib import Path

import pytest
import yaml

from judgelm.data.answers import AnswerSet, Candidate, PairSampler, pair_rows, read_questions
from judgelm.data.generators import build_generator, merge_generators, parse_generator
from judgelm.errors import ConfigError, InputError
from tests.support.jsonl_files import write_rows as write

CONFIG = Path(__file__).parents[2] / "configs" / "data" / "collect.yaml"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def questions(n):
    return write(
        "questions.jsonl", [{"id": i, "question": f"what is {i}", "reference": f"it is {i}"} for i in range(n)]
    )


def test_the_shipped_config_is_valid():
    settings = yaml.safe_load(CONFIG.read_text())["generators"]
    assert [generator.name for generator in merge_generators(map(build_generator, settings))] == [
        "vicuna-7b",
        "llama-7b",
        "served",
    ]


@pytest.mark.parametrize(
    ("text", "finding"),
    [
        ("model=x", "set a name and a model"),
        ("name=a,model=x,tempera=1", "tempera not found; available: name, engine"),
        ("name=a,model=x,temperature=warm", "temperature='warm': Input should be a valid number"),
        ("name=a,model=x,temperature=-1", "temperature is -1"),
        ("name=a/b,model=x", "used as a file name"),
        ("name=a,model=x,form=poem", "available: auto, chat, plain"),
        ("name=a,model=x,greedy", "expected NAME=VALUE"),
        ("name=a,model=x,decodings={}", "decodings: expected a list"),
        ("name=a,model=x,decodings=[{}],seed=1", "or separately, not both"),
    ],
)
def test_invalid_settings_of_a_generator_are_refused(text, finding):
    with pytest.raises(ConfigError, match=finding):
        parse_generator(text)


def test_two_generators_cannot_share_a_name():
    a, b = parse_generator("name=a,model=x"), parse_generator("name=a,model=y")
    with pytest.raises(ConfigError, match="defined twice with different settings"):
        merge_generators([a, b])
    with pytest.raises(ConfigError, match="two identical decodings"):
        merge_generators([a, a])


def test_questions_that_cannot_be_used_are_rejects(folder):
    rejects = []
    write("q.jsonl", [{"id": 1, "question": "q"}, {"id": 1, "question": "r"}, {"question": " "}, {"text": "q"},
                      {"question_body": "b", "category": "c", "reference": {"text": "r"}}])  # fmt: skip
    first, second = read_questions("q.jsonl", on_reject=rejects.append)
    assert (first.id, second.question, second.category, second.reference) == ("1", "b", "c", "r")
    assert [reject.line for reject in rejects] == [2, 3, 4]
    with pytest.raises(InputError, match="appears more than once"):
        read_questions("q.jsonl")


ANSWERS = [Candidate(model, "greedy", text) for model, text in zip("abcde", ["x", "y", "z", "x ", "w"], strict=True)]


def test_pairs_are_drawn_by_seed_and_question_alone():
    draw = PairSampler(pairs=3, seed=1)
    assert draw("q1", ANSWERS) == draw("q1", ANSWERS)
    assert draw("q1", ANSWERS)[:1] == PairSampler(pairs=1, seed=1)("q1", ANSWERS)
    assert any(draw("q1", ANSWERS) != other for other in (draw("q2", ANSWERS), PairSampler(pairs=3)("q1", ANSWERS)))
    drawn = Counter(
        frozenset((first.model, second.model)) for i in range(900) for first, second in PairSampler()(str(i), ANSWERS)
    )
    assert frozenset("ad") not in drawn  # the same text
    assert len(drawn) == 9  # 10 pairs of 5, less that one; 100 each expected, 3 standard deviations are 28
    assert all(70 < count < 130 for count in drawn.values())
    firsts = sum(first.model < second.model for i in range(900) for first, second in PairSampler()(str(i), ANSWERS))
    assert 400 < firsts < 500


def test_a_model_meets_itself_only_when_asked():
    twice = [Candidate("a", "greedy", "x"), Candidate("a", "warm", "y")]
    assert PairSampler()("q", twice) == []
    assert len(PairSampler(same_model=True)("q", twice)) == 1


def test_the_order_of_files_does_not_matter_and_more_pairs_come_last(folder):
    questions(5)
    samples = read_questions("questions.jsonl")
    names = [
        write(f"{model}.jsonl", [{"question_id": i, "model": model, "text": f"{model}{i}"} for i in range(5)])
        for model in "abc"
    ]

    def drawn(files, pairs):
        return list(pair_rows(samples, AnswerSet(files), PairSampler(pairs=pairs), counts=Counter()))

    two = drawn(names, 2)
    assert drawn(names[::-1], 2) == two
    assert drawn(names, 1) == two[:5]
    assert [row["question_id"] for row in two] == [f"{i}-{place}" for place in (1, 2) for i in range(5)]


def test_failed_and_truncated_answers_are_left_out(folder):
    questions(1)
    [question] = read_questions("questions.jsonl")
    rows = [
        {"question_id": 0, "model": "a", "text": "x", "finish_reason": "length", "failure": None},
        {"question_id": 0, "model": "b", "text": None, "failure": {"code": "engine"}},
        {"question_id": 0, "model": "c", "text": "z"},
    ]
    write("a.jsonl", rows)
    assert [answer.model for answer in AnswerSet(["a.jsonl"]).of(question)] == ["a", "c"]
    whole = AnswerSet(["a.jsonl"], drop_truncated=True)
    assert ([answer.model for answer in whole.of(question, with_reference=True)], whole.left_out) == (
        ["c", "reference"],
        2,
    )
    with pytest.raises(InputError, match=r'b.jsonl:1: field "text" is missing'):
        AnswerSet([write("b.jsonl", [{"question_id": 0, "model": "a"}])])
