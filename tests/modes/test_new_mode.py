"""A mode that judgelm does not know works everywhere after one line in MODES."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import pytest

from judgelm.engines.scripted import ScriptedEngine
from judgelm.judge import Judge
from judgelm.modes import MODES, BatchMode, make_mode
from judgelm.modes.completions import read_reply, with_usage
from judgelm.modes.labels import compared
from judgelm.prompts.catalog import PromptText, sha_of
from judgelm.records import Request, Sample, Sampling, Unparsed
from judgelm.runs.runner import judge
from tests.support.in_process import exit_code
from tests.support.jsonl_files import rows_of, write_rows

TEXT = "{question}\n1: {answer_1}\n2: {answer_2}\nBetter:"
PROMPT = PromptText(
    text=TEXT,
    kinds={"question": "question", "answer_1": "answer", "answer_2": "answer"},
    delimiters=("Better:",),
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


PAIR = Sample(id="s", question="q", answers=("a", "b"))


@pytest.fixture(autouse=True)
def _listed(monkeypatch):
    monkeypatch.setitem(MODES, "toy", f"{__name__}:Toy")


def test_the_runner_and_the_python_api_judge_with_it():
    [judgment] = judge([PAIR], make_mode("toy", {"room": 2}), ScriptedEngine({"q|a|b": "2"}))
    assert (judgment.mode, judgment.winner) == ("toy", 2)
    with Judge("1", engine="scripted") as loaded:
        [judgment] = judge([PAIR], loaded.mode("toy"), loaded.engine)
        assert judgment.winner == 1


def test_commands_list_it_judge_with_it_and_report_on_it(tmp_path, capsys):
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
