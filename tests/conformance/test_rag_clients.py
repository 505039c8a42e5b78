"""Metrics of answers that were written from documents, by the real clients: no result is missing."""

import pytest

from benchmarks.unknown_clients import texts

pytestmark = pytest.mark.conformance

KINDS = {
    "ragas": (
        *("faithfulness", "groundedness", "context precision", "context recall"),
        *("old faithfulness", "old groundedness", "old context precision", "old context recall"),
    ),
    "deepeval": ("faithfulness", "hallucination", "contextual relevancy", "contextual precision", "contextual recall"),
    "mlflow": ("groundedness",),
    "trulens": ("groundedness", "context relevance", "relevance"),
}
SAMPLES = 50


@pytest.mark.parametrize(("name", "kind"), [(name, kind) for name, kinds in KINDS.items() for kind in kinds])
def test_no_score_is_missing(client, answering_server, name, kind):
    singles = [
        {"question": pair["question"], "answer": pair[side], "reference": pair["first"]}
        for pair in texts(SAMPLES // 2)["pairs"]
        for side in ("first", "second")
    ]
    found = client(name, base_url=answering_server, kinds=[kind], singles=singles)
    assert (len(found[kind]), found[kind].count(None)) == (SAMPLES, 0)
