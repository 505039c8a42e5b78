"""Modes from names and options: which options and samples they reject; a new mode needs one line in MODES."""

import math
from dataclasses import dataclass, fields
from typing import ClassVar, Literal

import pytest

from judgelm.engines.scripted import ScriptedEngine
from judgelm.errors import ConfigError, InputError
from judgelm.judge import Judge
from judgelm.modes import CARD_FIELDS, MODES, BatchMode, Pairwise, make_mode, mode_type
from judgelm.modes.completions import read_reply, with_usage
from judgelm.modes.labels import compared
from judgelm.prompts.catalog import PromptText, sha_of
from judgelm.records import Request, Sample, Sampling, Unparsed
from judgelm.runs.runner import judge
from tests.support.in_process import exit_code
from tests.support.jsonl_files import rows_of, write_rows
from tests.support.trajectories import text


def test_a_mode_takes_its_options_and_what_is_the_judges_own():
    made = make_mode("pair", {"both_orders": True}, {"template": "judgelm-chat", "scale": (1, 5), "unheard_of": 1})
    assert made == Pairwise(both_orders=True, template="judgelm-chat", scale=(1, 5))


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("pairs", {}, "mode 'pairs' does not exist; did you mean pair?"),
        ("pair", {"tau": 1}, "mode pair: unknown option tau; available options: accept_one_order, both_orders"),
        ("pair", {"template": "judgelm-v1"}, "unknown option template"),
        ("pair", {"tie_threshold": "wide"}, "mode pair: tie_threshold: Input should be a valid number.*'wide'"),
        ("pair", {"order_rule": "best"}, "order_rule: Input should be 'mean', 'given', 'tie' or 'probability'"),
        ("pair", {"tie_threshold": 2}, r"tie_threshold is 2\.0"),
        ("pair", {"order_rule": "given", "accept_one_order": True}, "remove accept_one_order"),
        ("pair", {"reasons": "flips"}, "add --both-orders"),
        ("pair", {"close_threshold": 0.6}, r"close_threshold is 0\.6"),
        ("pair", {"reason_tokens": 0}, "reason_tokens is 0"),
        ("single", {"max_tokens": 0}, "max_tokens is 0"),
        ("multi", {"permutations": 0}, "permutations is 0"),
        ("multi", {"min_answer_tokens": 15}, "minimum is 16"),
        ("multimodal", {"wording": "x"}, "wording"),
        ("multimodal", {"max_tokens": 0}, "max_tokens is 0"),
        ("qa", {"shots": 1}, "shots"),
        ("qa", {"exact": "squad"}, "exact"),
        ("qa", {"max_tokens": 0}, "max_tokens is 0"),
        ("qa", {"distribution": True, "labels": "original"}, "requires labels strict"),
        ("qa", {"shots": 2, "with_context": True, "wording": "released"}, "shots=6"),
        ("qa", {"shots": 6, "wording": "released"}, "shots=6"),
        ("correctness", {"max_tokens": 0}, "max_tokens is 0"),
        ("correctness", {"temperature": -1}, "temperature"),
        ("ssr", {"task": "preference"}, "no final answers to compare"),
        ("ssr", {"tau": 1.2}, r"tau is 1\.2"),
        ("ssr", {"solves": 0}, "solves is 0"),
        ("ssr", {"solve_temperature": 0}, "5 solves at temperature 0"),
        ("ssr", {"solve_temperature": -1}, "solve_temperature"),
        ("ssr", {"max_tokens": 0}, "max_tokens is 0"),
        ("chat", {"reply_tokens": 0}, "reply_tokens is 0"),
        ("checklist", {"tie_margin": 1.5}, "tie_margin"),
        ("checklist", {"criteria": [{}]}, "criteria"),
        ("trajectory", {"tasks": ["outcome", "outcome"]}, "outcome: .*listed twice"),
        ("trajectory", {"tasks": ["speed"]}, "Input should be"),
        ("trajectory", {"criterion": " "}, "criterion is empty"),
        ("trajectory", {"tie_threshold": 0.7}, "tie_threshold is 0.7"),
        ("trajectory", {"tasks": [], "reference": "ignore"}, "nothing to judge by"),
        ("reward", {"tie_threshold": 0.6}, "tie_threshold is 0.6"),
        ("reasoned", {"votes": 3, "temperature": 0}, "3 votes at temperature 0"),
        ("reasoned", {"votes": 0}, "votes is 0; it must be a number between 2"),
        ("reasoned", {"votes": "3"}, "votes is 3; it must be a number"),
        ("reasoned", {"votes": 3, "vote_rule": "median"}, "vote_rule 'median' does not exist"),
        ("reasoned", {"vote_rule": "mean"}, "vote_rule requires votes"),
        ("pair", {"votes": 3}, "mode pair gets verdict"),
    ],
)
def test_invalid_options_are_rejected(name, options, message):
    with pytest.raises(ConfigError, match=message):
        make_mode(name, options)


@pytest.mark.parametrize(
    ("name", "template", "options", "message"),
    [
        ("trajectory", "judgelm-v1", {}, "use --reading yes-no"),
        ("pair", "yes-no-trajectory", {}, "use --mode trajectory"),
        ("reward", "yes-no", {}, "mode reward needs"),
        ("conversation", "reward", {}, "mode conversation: reward models .* use mode reward"),
        ("pair", "reward", {"reasons": "all"}, "cannot give reasons"),
        ("pair", "reward", {"criterion": "Is it short?"}, "template reward does not support criteria"),
        ("pair", "reward", {"retry_unparseable": True}, "retry_unparseable"),
        ("pair", "yes-no", {"order_rule": "tie"}, "order_rule"),
        ("pair", "yes-no", {"retry_unparseable": True}, "retry_unparseable"),
        ("pair", "yes-no", {"temperature": 1.0}, "temperature"),
        ("pair", "yes-no", {"criterion": " "}, "criterion is empty"),
        ("pair", "judgelm-v1", {"criterion": "x"}, "does not support criteria"),
        ("pair", "yes-no-criterion", {}, "set one with --criterion"),
    ],
)
def test_options_that_the_template_does_not_support_are_rejected(name, template, options, message):
    with pytest.raises(ConfigError, match=message):
        make_mode(name, options, {"template": template})


@pytest.mark.parametrize(
    ("name", "card", "message"),
    [
        ("pair", {"step": 0}, "must be above 0"),
        ("pair", {"step": 0.01, "distribution": True}, r"has \d+ scores"),
        ("pair", {"scale": (0, 1000), "retry_unparseable": True}, r"has \d+ scores"),
        ("pair", {"template": "yes-no", "calibration_temperature": 0.0}, "calibration_temperature"),
        ("reward", {"calibration_temperature": 0}, "calibration_temperature is 0.0; it must be above 0"),
    ],
)
def test_cards_with_impossible_values_are_rejected(name, card, message):
    own = {field: value for field, value in card.items() if field in CARD_FIELDS}
    with pytest.raises(ConfigError, match=message):
        make_mode(name, {field: value for field, value in card.items() if field not in own}, own)


def sample(*answers, **fields):
    return Sample(id="x", question="q", answers=answers, **fields)


@pytest.mark.parametrize(
    ("name", "options", "given", "finding"),
    [
        ("single", {}, sample("a", "b"), "expected 1 answer, got 2"),
        ("single", {"against": "reference"}, sample("a"), "no reference to grade against"),
        ("single", {"against": "anchor"}, sample("a"), "no anchor"),
        ("single", {"against": "anchor"}, sample("a", metadata={"anchor": 3}), "expected a string"),
        ("multimodal", {}, sample("a"), "one answer and a reference, got 1 answer"),
        ("multimodal", {"images": "use"}, sample("a", reference="r"), "no image"),
        ("rubric", {}, sample("a", "b"), "expected 1 answer, got 2"),
        ("correctness", {}, sample("a", "b"), "expected 1 answer, got 2"),
        ("qa", {}, sample("a"), "one answer and a reference, got 1 answer"),
        ("qa", {}, sample("a", "b", reference="c"), "got 2 answer"),
        ("qa", {"with_context": True}, sample("a", reference="c"), 'no "context"'),
        ("ssr", {}, sample("a"), "expected 2 answers, got 1"),
        ("reasoned", {}, sample("a", "b", "c"), "expected 2 answers, got 3"),
        ("conversation", {}, sample("a", "b", "c"), "expected 1 or 2 answers, got 3"),
        ("checklist", {}, sample("a"), "no criteria"),
        ("trajectory", {}, sample(text(), text(), text()), "expected 1 or 2 answers, got 3"),
        ("trajectory", {}, sample(text(), "Shipped."), "trajectory 2: expected a trajectory"),
        ("trajectory", {"tasks": ()}, sample(text()), "matching needs"),
        ("chat", {}, sample("a", "b", metadata={"follow_ups": "Why?"}), "follow_ups: expected a list of questions"),
        ("chat", {}, sample("a", "b", metadata={"follow_ups": ["Why?", 7]}), "expected a list of questions"),
        ("chat", {}, sample("a", "b", metadata={"follow_ups": ["Why?", ""]}), "expected a list of questions"),
    ],
)
def test_a_sample_without_what_the_mode_needs_is_rejected(name, options, given, finding):
    with pytest.raises(InputError, match=f"sample x: .*{finding}"):
        next(make_mode(name, options)(given))


def numbers():
    """Every numeric option of every mode that a user can set."""
    for name in MODES:
        for option in fields(mode_type(name)):
            if option.name not in CARD_FIELDS and ("int" in str(option.type) or "float" in str(option.type)):
                yield name, option.name


@pytest.mark.parametrize(("name", "option"), list(numbers()))
def test_every_number_has_finite_bounds(name, option):
    for value in (math.nan, math.inf, -math.inf, 10**400, -(10**400), 1e300, 2**63):
        with pytest.raises(ConfigError):
            make_mode(name, {option: value})


TEXT = "{question}\n1: {answer_1}\n2: {answer_2}\nBetter:"
PROMPT = PromptText(
    text=TEXT, kinds={"question": "question", "answer_1": "answer", "answer_2": "answer"}, delimiters=("Better:",)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Toy(BatchMode):
    """Name the better of two answers.

    Attributes:
        room: maximum tokens of the reply.
    """

    name: ClassVar[str] = "toy"
    answers: ClassVar[tuple[int, int]] = (2, 2)
    reference: ClassVar[Literal["ignore"]] = "ignore"
    template: ClassVar[str] = "toy"
    template_sha: ClassVar[str] = sha_of(TEXT)
    protocol: ClassVar[str] = "The judge named the better answer"

    room: int = 4

    @with_usage
    def __call__(self, sample):
        self.check(sample)
        first, second = sample.answers
        prompt = PROMPT.render({"question": sample.question, "answer_1": first, "answer_2": second}, chat=False)
        [completion] = yield [Request(key="0", prompt=prompt, sampling=Sampling(max_tokens=self.room, stop=("\n",)))]
        shown = read_reply(completion, _label, max_tokens=self.room, order=(0, 1))
        return compared(self, sample, [shown], accept_one_order=False)


def _label(text):
    return text.strip() if text.strip() in ("1", "2") else Unparsed("off_grammar", text, "expected 1 or 2")


@pytest.fixture
def toy_mode(monkeypatch):
    monkeypatch.setitem(MODES, "toy", f"{__name__}:Toy")


@pytest.mark.usefixtures("toy_mode")
def test_the_runner_and_the_python_api_judge_with_a_new_mode():
    [judgment] = judge([sample("a", "b")], make_mode("toy", {"room": 2}), ScriptedEngine({"q|a|b": "2"}))
    assert (judgment.mode, judgment.winner) == ("toy", 2)
    with Judge("1", engine="scripted") as loaded:
        [judgment] = judge([sample("a", "b")], loaded.mode("toy"), loaded.engine)
        assert judgment.winner == 1


@pytest.mark.usefixtures("toy_mode")
def test_commands_list_a_new_mode_judge_with_it_and_report_on_it(tmp_path, capsys):
    rows = [{"id": f"s{i}", "question": "q", "answer_1": "a", "answer_2": "b", "label": 2} for i in range(3)]
    pairs, out = write_rows(tmp_path / "pairs.jsonl", rows), tmp_path / "out.jsonl"
    options = ("--mode", "toy", "--mode-arg", "room=3", "--engine", "scripted", "--model", "2")
    assert exit_code("judgelm-batch", pairs, "-o", out, *options) == 0
    assert [row["verdict"]["winner"] for row in rows_of(out)] == [2, 2, 2]
    assert exit_code("judgelm", "judges", "modes") == 0
    assert "Name the better of two answers." in capsys.readouterr().out
    assert exit_code("judgelm", "judges", "modes", "toy") == 0
    assert "--mode-arg room=" in capsys.readouterr().out
    page = tmp_path / "report.html"
    assert exit_code("judgelm", "report", out, "--labels", pairs, "-o", page) == 0
    assert Toy.protocol in page.read_text()
