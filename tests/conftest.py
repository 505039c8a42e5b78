"""What tests share: a tiny random judge made on the spot, and where the real data lies."""

from pathlib import Path

import pytest

SHARED_DATA = Path(__file__).parents[1].parent / "shared" / "data"

WORDS = (
    "what is the capital of france paris london a big red fox jumps over lazy dogs because it can 1 2 3 4 5 6 7 8 9 10"
)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real data beside the checkout."""
    if not SHARED_DATA.is_dir():
        pytest.skip("the real data is not there: no ../shared/data beside this checkout")
    return SHARED_DATA


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory) -> Path:
    """A Llama of two layers with random weights and a byte-level tokenizer; it writes nonsense, always the same."""
    from judgelm.training.base import make_base

    folder = tmp_path_factory.mktemp("tiny") / "model"
    make_base([WORDS] * 20, folder, hidden_size=64, layers=2, heads=4, vocab_size=400, max_positions=512, seed=0)
    return folder
