"""The small judge itself: what a numeric format changes of its probabilities."""

from pathlib import Path

import numpy as np
import pytest

from judgelm.engines.gguf.checkpoint import checkpoint_of
from judgelm.judge import Judge
from judgelm.records import Sample
from judgelm.runs.runner import judge

pytestmark = pytest.mark.slow
ADAPTER = Path(__file__).parents[2] / "examples/small_judge/judgelm_small_judge"


@pytest.fixture(scope="module")
def probabilities(base_gguf, example_pairs):
    """P(first better) of the sixty everyday pairs in a format, both orders of each."""
    checkpoint_of(base_gguf)  # where the adapter's card looks for its base

    def judged(**options):
        samples = [
            Sample(id=row["id"], question=row["question"], answers=(row["answer_1"], row["answer_2"]))
            for row in example_pairs
        ]
        with Judge(str(ADAPTER), engine="transformers", device="cpu", **options) as loaded:
            mode = loaded.pairwise(both_orders=True, order_rule="probability")
            by_id = {judgment.sample_id: judgment.probability for judgment in judge(samples, mode, loaded.engine)}
        return np.array([by_id[sample.id] for sample in samples], dtype=np.float64)

    return judged


@pytest.fixture(scope="module")
def exact(probabilities):
    return probabilities(dtype="float32")


# on PandaLM 0.0049 (docs/judging.md); a logit rounded to a multiple of 1/8 alone moves P by 0.0114
def test_bfloat16_moves_the_probability_as_little_as_measured(probabilities, exact):
    moved = np.abs(probabilities(dtype="bfloat16") - exact)
    assert 0 < moved.mean() < 0.01
