"""Metrics of answers that were written from documents, by the real clients: no result is missing."""

import sys

import pytest

from benchmarks.unknown_clients import texts
from judgelm.errors import ModelError
from judgelm.judges.cards import named_judge
from tests.support.processes import serving

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
METRICS = pytest.mark.parametrize(("name", "kind"), [(name, kind) for name, kinds in KINDS.items() for kind in kinds])


def answers(count):
    """Answers to everyday questions, with the better answer as the document."""
    return [
        {"question": pair["question"], "answer": pair[side], "reference": pair["first"]}
        for pair in texts(count // 2)["pairs"]
        for side in ("first", "second")
    ]


@METRICS
def test_no_score_is_missing(client, answering_server, name, kind):
    found = client(name, base_url=answering_server, kinds=[kind], singles=answers(50))
    assert (len(found[kind]), found[kind].count(None)) == (50, 0)


@pytest.fixture(scope="module")
def default_judge():
    """The address of a server of the default judge."""
    try:
        named_judge(None)
    except ModelError as error:
        pytest.skip(str(error))
    with serving(sys.executable, "-m", "judgelm", "serve", "--port", 0, "--unknown", "answer") as address:
        yield address


@pytest.mark.slow
@pytest.mark.timeout(1800)
@METRICS
def test_no_score_of_the_default_judge_is_missing(client, default_judge, name, kind):
    found = client(name, base_url=default_judge, timeout_s=1700, kinds=[kind], singles=answers(10))
    assert (len(found[kind]), found[kind].count(None)) == (10, 0)
