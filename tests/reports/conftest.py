import pytest

from judgelm.records import Judgment, Label, PairVerdict, Sample, Shown, Unparsed
from judgelm.reports.html import render_report
from judgelm.studies.evaluation import EvaluationOptions, evaluate

NASTY = "<script>alert(1)</script>"


def judged(key, given, swapped):
    mean = ((given[0] + swapped[1]) / 2, (given[1] + swapped[0]) / 2)
    winner = 1 if mean[0] > mean[1] else 2 if mean[0] < mean[1] else "tie"
    shown = (
        Shown(order=(0, 1), text=f"{given[0]} {given[1]}\n{NASTY}", scores=given),
        Shown(order=(1, 0), text=f"{swapped[0]} {swapped[1]}\n", scores=swapped),
    )
    return Judgment(sample_id=key, mode="pair", verdict=PairVerdict(winner=winner), shown=shown, scores=mean)


def unreadable(key):
    failure = Unparsed("off_grammar", f"No scores {NASTY}", "expected two numbers")
    shown = tuple(Shown(order=order, text=failure.text, failure=failure) for order in ((0, 1), (1, 0)))
    return Judgment(sample_id=key, mode="pair", verdict=None, shown=shown, failure=failure)


class Run:
    """Judgments, labels and samples that belong together, and their report."""

    def __init__(self, judgments, winners, votes=()):
        self.judgments = {judgment.sample_id: judgment for judgment in judgments}
        self.labels = {
            key: Label(sample_id=key, winner=winner, votes=votes)
            for key, winner in zip(self.judgments, winners, strict=True)
        }
        self.samples = {
            key: Sample(id=key, question=f"Question {key} {NASTY}", answers=("", f"Answer {NASTY}"), reference=NASTY)
            for key in self.judgments
        }
        self.manifest = {"model": f"judge {NASTY}", "sessions": [{"samples_per_s": 1}, {"samples_per_s": 2.5}]}
        self.title = f"Report & {NASTY}"

    def evaluation(self, **options):
        groups = {f"kind {NASTY}": dict.fromkeys(self.judgments, f"code {NASTY}")}
        return evaluate(self.judgments, self.labels, groups=groups, options=EvaluationOptions(**options))

    def html(self, samples=True, **options):
        return render_report(
            self.evaluation(**options), judgments=self.judgments, samples=self.samples if samples else None,
            labels=self.labels, manifest=self.manifest, title=self.title,
        )  # fmt: skip


@pytest.fixture
def run():
    """A right pair, a wrong one that flips, a tie that is right, a failure; two of three votes for the label."""
    judgments = [judged("a", (8, 3), (3, 8)), judged("b", (8, 3), (6, 5)), judged("c", (5, 5), (5, 5)), unreadable("d")]
    return Run(judgments, [1, 2, "tie", 1], votes=(1, 1, 2))


@pytest.fixture
def failed_run():
    return Run([unreadable("a"), unreadable("b")], [1, "tie"])


@pytest.fixture
def many_failures():
    return Run([unreadable(str(i)) for i in range(502)], [1] * 502)


@pytest.fixture
def without_failures():
    return Run([judged("a", (8, 3), (3, 8)), judged("b", (8, 3), (6, 5))], [1, 2])
