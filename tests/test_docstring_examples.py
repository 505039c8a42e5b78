"""What an example in a docstring shows is what Python answers."""

import doctest
import importlib
from pathlib import Path

import pytest

import judgelm

PACKAGE = Path(judgelm.__file__).parent
WITH_EXAMPLES = sorted(path for path in PACKAGE.rglob("*.py") if ">>> " in path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", WITH_EXAMPLES, ids=lambda path: path.stem)
def test_the_examples_hold(path):
    module = importlib.import_module(".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts))
    result = doctest.testmod(module)
    assert result.attempted
    assert not result.failed
