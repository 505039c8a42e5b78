"""Our metrics against the original authors' own metric code, run on 420 rows."""

import json
from pathlib import Path

import numpy as np
import pytest

from judgelm.metrics.agreement import agreement, position_bias

EXPECTED = Path(__file__).parents[2].parent / "shared" / "data" / "expected" / "judgelm_metrics.json"
pytestmark = pytest.mark.skipif(not EXPECTED.exists(), reason=f"{EXPECTED} is absent")


def labels(items, field):
    scores = np.array([item[field] for item in items])
    return np.sign(scores[:, 0] - scores[:, 1]).astype(int)


@pytest.mark.parametrize("name", ["clean_no_bad", "perfect", "always_first"])
def test_same_numbers_as_the_original_code(name):
    scenario = json.loads(EXPECTED.read_text())["scenarios"][name]
    items, expected = scenario["items"], scenario["expected_filter_true"]
    truth, given = labels(items, "gt_parsed"), labels(items, "seq_parsed")
    swapped = -labels(items, "rev_parsed")  # written in the order shown; back in sample order
    ours, bias = agreement(truth, given), position_bias(given, swapped)
    assert {
        "accuracy": ours.accuracy,
        "precision": ours.precision,
        "recall": ours.recall,
        "f1": ours.f1,
        "consistency": bias.consistency,
        "perfer_before_rate": bias.toward_first,
        "perfer_after_rate": bias.toward_second,
        "delta_bias": bias.delta,
        "total_bias": bias.toward_first + bias.toward_second,
        "total_num": bias.n,
    } == pytest.approx(expected, abs=1e-9)
