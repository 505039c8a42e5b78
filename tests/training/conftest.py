"""What the tests of training share: a file of labelled pairs, and the tiny model's tokenizer."""

import pytest
from transformers import AutoTokenizer

from tests.support.recipe_runs import write_world


@pytest.fixture(scope="session")
def train_file(tmp_path_factory):
    """96 labelled pairs of the synthetic world."""
    return write_world(tmp_path_factory.mktemp("world") / "train.jsonl")


@pytest.fixture(scope="session")
def tokenizer(tiny_model):
    return AutoTokenizer.from_pretrained(tiny_model)
