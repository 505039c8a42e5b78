"""The parsers here conclude what the clients' own did, reply by captured reply."""

import pytest

from tests.dialects.client_parsers import CLIENTS, choice_of, faireval
from tests.support import captures


@pytest.mark.parametrize("folder", CLIENTS)
def test_the_parser_here_concludes_what_the_client_did(shared_data, folder):
    client = CLIENTS[folder]
    for reply, parsed in captures.replies(shared_data, folder):
        conclusion = client.concluded(parsed)
        wanted = pytest.approx(conclusion) if isinstance(conclusion, float) else conclusion
        assert client.read(choice_of(reply)) == wanted, reply


def test_faireval_averages_the_scores_of_all_replies(shared_data):
    for reply, parsed in captures.replies(shared_data, "faireval"):
        texts = [choice["message"]["content"] for choice in reply["choices"]]
        scores = [scores for text in texts if (scores := faireval(text)) is not None]
        every = scores + [(second, first) for first, second in scores]  # the same replies in the other order, put back
        means = [sum(column) / len(every) for column in zip(*every, strict=True)] if every else None
        assert means == parsed.get("score")
