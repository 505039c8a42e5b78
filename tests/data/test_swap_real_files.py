"""Exchange over GPT-4's reviews of real answers: how much of them can be told, and that nothing is lost."""

import gzip
import json
import re
from collections import Counter
from functools import partial
from pathlib import Path

import pytest

from judgelm.data.sources.layouts import split_review
from judgelm.data.swap_names import Ambiguous, SwappedText, swap_names
from tests.support.jsonl_files import rows_of

DATA = Path(__file__).parents[3] / "shared" / "data"
SWAP = (1, 0)

pytestmark = pytest.mark.skipif(not DATA.is_dir(), reason=f"the real data sets are not at {DATA}")


def reviews(folder):
    """The reasons of a folder's reviews, with those of their answers that are there."""
    files = (DATA / "vicuna_reviews" / "answer").iterdir()
    answers = {row["answer_id"]: row["text"] for path in files for row in rows_of(path)}
    for path in sorted(folder.iterdir()):
        for row in rows_of(path):
            judged = [answers[row[name]] for name in ("answer1_id", "answer2_id") if row[name] in answers]
            yield split_review(row["text"])[1], judged


def llmbar():
    for path in sorted((DATA / "llmbar").glob("*/evaluators/*/CoT/result.json.gz")):
        for row in json.loads(gzip.decompress(path.read_bytes())):
            for shown in row["results"][-1].values():
                yield shown["completion"][0], [row["input"], row["output_1"], row["output_2"]]


def pandalm():
    pairs = {row["idx"]: row for row in json.loads((DATA / "pandalm" / "testset-v1.json").read_text())}
    for row in json.loads((DATA / "pandalm" / "pandalm-7b-testset-v1.json").read_text()):
        yield row["pandalm_reason"], [str(pairs[row["idx"]][name]) for name in ("response1", "response2")]


VICUNA, QLORA = DATA / "vicuna_reviews" / "review", DATA / "qlora_ratings" / "relative-gpt-3.5"


@pytest.mark.parametrize(
    ("source", "counts", "mentions"),
    [
        (partial(reviews, VICUNA), {"exchanged": 640}, 2791),
        (partial(reviews, QLORA), {"exchanged": 1117, "unnamed_ordinal": 2, "unnamed_scores": 1}, 4927),
        (llmbar, {"exchanged": 1403, "unnamed_scores": 1}, 5548),
        (pandalm, {"exchanged": 999}, 1054),
    ],
)
def test_real_reasons_are_exchanged_and_given_back(source, counts, mentions):
    found, names = Counter(), 0
    for text, answers in source():
        result = swap_names(text, SWAP, answers)
        if isinstance(result, Ambiguous):
            found[result.code] += 1
            continue
        found["exchanged"] += 1
        names += result.mentions
        assert swap_names(result.text, SWAP, answers) == SwappedText(text=text, mentions=result.mentions)
    assert (dict(found), names) == (counts, mentions)


def test_each_assistant_of_the_reviews_is_exchanged_and_no_other_word():
    # Both were checked by eye: these 1,760 reviews name answers as "Assistant 1" and in one other way, "the second
    # assistant", in a review that is ambiguous for another reason.
    for folder in (VICUNA, QLORA):
        for text, answers in reviews(folder):
            result = swap_names(text, SWAP, answers)
            if isinstance(result, SwappedText):
                assert result.text == re.sub("(ssistants? )([12])", lambda m: m[1] + "21"[int(m[2]) - 1], text)
