"""The replication: what its bases read, its runs and tables, its numbers on judges whose behaviour is known."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.replication.crossed import crossed_difference, crossed_estimate, crossed_sums
from benchmarks.replication.data import documents, write_test, write_training
from benchmarks.replication.measures import cell_of, difference, measure, pooled, truth_of
from benchmarks.replication.page import claim_figure, claim_lines, standing_alone
from benchmarks.replication.plan import PLANS, Run
from benchmarks.replication.runs import Outcome, read_pairs
from benchmarks.replication.tables import Claim, claims_of
from judgelm.metrics.resampling import Estimate, Resampling, estimate
from tests.support.processes import run_command

HOW = Resampling(resamples=500)


@pytest.fixture(scope="module")
def truths(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lab")
    for name, preference in (("teacher", 0.4), ("impartial", 0.0)):
        write_test(400, folder / name, preference=preference)
    teacher, impartial = read_pairs(folder / "teacher"), read_pairs(folder / "impartial")
    return {shown: truth_of(teacher, impartial, shown) for shown in ("without", "with")}


def judges(truth, *, seeds=3, error=0.0, lean=0.0, seed=0):
    """Judges that say the impartial truth, err at random in both orders alike, or favour what stands first."""
    outcomes, size = [], truth.impartial.size
    for index in range(seeds):
        rng = np.random.default_rng([seed, index])
        said = np.where(rng.random(size) < error, rng.integers(-1, 2, size), truth.impartial)
        leaning = rng.random(size) < lean
        orders = [tuple(np.where(leaning, place, said).tolist()) for place in (1, -1)]
        outcomes.append(Outcome(given=orders[0], swapped=orders[1]))
    return cell_of(outcomes, truth)


def test_no_question_of_the_test_is_read_or_trained_on_and_a_larger_scale_begins_with_the_smaller_ones(tmp_path):
    few, many = Run(base="S", rows=20, seed=0), Run(base="L", rows=300, seed=0)
    for run in (few, many):
        write_training(run, tmp_path / run.name)
    assert (tmp_path / many.name).read_text().startswith((tmp_path / few.name).read_text())
    write_test(300, tmp_path / "test", preference=0.4)
    test, train = ({str(pair.sample.question) for pair in read_pairs(tmp_path / name)} for name in ("test", many.name))
    read = {document[4 : document.index("\n")] for document in documents(300)}
    assert not test & (train | read)


def test_a_judge_that_favours_the_first_place_shows_it(truths):
    fair, leaning = judges(truths["without"]), judges(truths["without"], lean=0.3)
    values = {name: figure.value for name, figure in measure(leaning, HOW).items()}
    assert values["toward_first"] == values["delta_bias"] == pytest.approx(0.3, abs=0.04)
    assert values["toward_second"] == 0
    assert pooled([fair, judges(truths["without"], seeds=5)]).values.shape == (3, 800, 14)  # of seeds that both have
    compared = difference(fair, leaning, HOW)
    assert compared["consistency"].low > 0
    assert compared["delta_bias"].high < 0


@pytest.fixture(scope="module")
def plan():
    return replace(PLANS["full"], scales=(100, 1000), ablation=("M", 100))


@pytest.fixture(scope="module")
def cells(plan, truths):
    """Judges that behave as the paper's: better with data, size and references, less biased with swaps."""
    sizes = [base.name for base in plan.bases]

    def cell(base, rows, swap, reference, shown):
        matched = {"never": "without", "always": "with"}.get(reference, shown) == shown
        skill = 0.1 * sizes.index(base) + 0.1 * (rows == 1000) + 0.1 * (shown == "with")
        return judges(truths[shown], error=0.5 - skill + 0.3 * (not matched), lean=0.05 if swap else 0.35 - skill / 2)

    return cell


def test_claims_hold_where_judges_behave_as_the_papers(plan, cells):
    claims = claims_of(plan, cells, HOW)
    assert {claim.verdict for claim in claims if "drop" not in claim.comparison} == {"yes"}
    assert len(claim_lines(claims)) == len(claims) + 3
    assert standing_alone(claim_figure(claims)).startswith('<svg xmlns="http://www.w3.org/2000/svg" ')


@pytest.mark.parametrize(
    ("expected", "low", "high", "verdict"),
    [
        ("more", 0.01, 0.02, "yes"), ("more", -0.02, -0.01, "no"), ("more", -0.01, 0.01, "open"),
        ("less", -0.02, -0.01, "yes"), ("less", 0.01, 0.02, "no"), ("less", -0.01, 0.01, "open"),
        ("not less", -0.01, 0.02, "yes"), ("not less", -0.02, -0.01, "no"),
    ],
)  # fmt: skip
def test_a_claim_is_read_off_the_interval(expected, low, high, verdict):
    found = Estimate(value=(low + high) / 2, low=low, high=high, n=10)
    assert Claim(comparison="", measure="agreement", expected=expected, difference=found).verdict.startswith(verdict)


@pytest.mark.slow
def test_the_whole_replication_runs_and_goes_on_where_it_stopped(tmp_path):
    def replicate(plan="smoke", **options):
        command = (sys.executable, "-m", "benchmarks.replication", "--plan", plan, "--folder", tmp_path / "lab")
        return run_command(*command, cwd=Path(__file__).parents[2], timeout=600, **options)

    replicate()
    page = tmp_path / "lab" / "page"
    tables = (page / "tables.md").read_text()
    assert all(f"Table {number}" in tables for number in (4, 5, 6, 1))
    runs = PLANS["smoke"].runs()
    assert set(json.loads((page / "outcomes.json").read_text())) == {run.name for run in runs}
    (tmp_path / "lab" / "outcomes" / f"{runs[0].name}.json").unlink()
    assert f"1/1 runs, 0 min: {runs[0].name}" in replicate().stdout
    assert (page / "tables.md").read_text().splitlines()[4:] == tables.splitlines()[4:]  # the same numbers
    assert "holds runs of another plan" in replicate("quick", code=1).stderr


def test_a_perfect_judge_agrees_with_the_impartial_and_is_consistent(truths):
    found = measure(judges(truths["without"]), HOW)
    assert [found[name].value for name in ("impartial", "consistency", "delta_bias")] == [1, 1, 0]
    assert found["agreement"].value == np.mean(truths["without"].teacher == truths["without"].impartial) < 1


CROSSED = Resampling(seed=3, resamples=4000)


def share(sums):
    return sums[:, :1] / sums[:, 1:]


def hits(array):
    """(seeds, pairs) of 0 and 1 as (seeds, pairs, 2): hit, counted."""
    return np.stack([array, np.ones_like(array)], axis=-1).astype(float)


def test_with_one_seed_it_is_the_bootstrap_over_questions():
    rng = np.random.default_rng(0)
    one = hits(rng.random((1, 300)) < 0.7)
    clusters = [i // 2 for i in range(300)]
    [crossed] = crossed_estimate(one, share, clusters, CROSSED)
    [plain] = estimate(one[0], share, clusters, CROSSED)
    assert (crossed.value, crossed.n) == (plain.value, 300)
    assert (crossed.low, crossed.high) == pytest.approx((plain.low, plain.high), abs=0.01)


def test_its_width_is_that_of_new_questions_and_new_judges():
    # variance of a mean over S seeds and Q questions: seeds' / S + questions' / Q + the rest's / (S * Q); the bootstrap
    # of both at once is known to count the rest up to three times, which is little here
    rng = np.random.default_rng(2)
    seeds, questions = 8, 400
    shapes = ((0.1, (seeds, 1)), (1.0, (1, questions)), (0.1, (seeds, questions)))
    effects = sum(rng.normal(0, spread, shape) for spread, shape in shapes)
    values = np.stack([effects, np.ones_like(effects)], axis=-1)
    samples = share(crossed_sums(values, list(range(questions)), CROSSED))[:, 0]
    expected = effects.mean(axis=1).var() / seeds + effects.mean(axis=0).var() / questions
    assert samples.var() == pytest.approx(expected, rel=0.15)


def test_what_two_kinds_of_judges_share_cancels():
    rng = np.random.default_rng(3)
    hard = rng.random(400)
    base = hits(np.stack([hard > 0.5 + shift for shift in (0.0, 0.1, 0.2)]))
    better = hits(np.stack([hard > 0.45 + shift for shift in (0.0, 0.1, 0.2)]))
    [found] = crossed_difference(better, base, share, list(range(400)), CROSSED)
    [alone] = crossed_estimate(better, share, list(range(400)), CROSSED)
    assert 0 < found.low < found.value < found.high
    assert found.high - found.low < 0.5 * (alone.high - alone.low)


def test_nothing_to_draw_from_is_an_error():
    for seeds, keys, finding in ((0, [1, 2, 3], "0 seeds"), (1, [1, 2], "2 cluster keys")):
        with pytest.raises(ValueError, match=finding):
            crossed_sums(np.zeros((seeds, 3, 2)), keys, CROSSED)
