"""Judges that `train/sft.py` made, for tests of what becomes of them: one trained whole, and adapters on it.

The base is 192 wide with six heads: vLLM's CPU build runs heads of 32, and the 4-bit layers of bitsandbytes need widths
that 64 divides, as 192 and its MLP's 512. An answer's score is its number of words; adapters are taught 11 less that.
"""

import json
import runpy
import sys

import pytest

from judgelm.judge import Judge
from judgelm.training.tiny_model import make_base
from tests.support import recipe_runs
from tests.support.tiny_judges import reply_of, text_of, word_sample

PAIRS = [word_sample(f"asked {number}") for number in range(30)]


@pytest.fixture(scope="session")
def judged():
    """Ask a judge for all pairs in both orders; their scores, None where it wrote none, and P(first is better)."""

    def ask(folder, *, distribution=True, **options):
        with Judge(str(folder), **({"engine": "transformers", "dtype": "float32"} | options)) as judge:
            found = [judge.compare(one.question, *one.answers, distribution=distribution) for one in PAIRS]
        assert sum(one.failure is not None for one in found) <= 3  # trained for seconds, it may write 100 for a 10
        return [one.scores for one in found], [one.probability for one in found]

    return ask


@pytest.fixture(scope="session")
def train_on_words(tmp_path_factory):
    """Run the recipe on word counts, or on their opposite; the output folder."""

    def train(name, *, opposite=False, **options):
        folder = tmp_path_factory.mktemp(name)
        rows = folder / "rows.jsonl"
        with rows.open("w") as file:
            for number in range(256):
                sample = word_sample(f"{name} {number}")
                counts = [len(answer.split()) for answer in sample.answers]
                scores = [11 - count for count in counts] if opposite else counts
                row = {"id": sample.id, "question": sample.question, "answers": list(sample.answers), "scores": scores}
                file.write(json.dumps(row) + "\n")
        shape = {"per_device_train_batch_size": 16, "gradient_accumulation_steps": 1, "num_train_epochs": 2}
        settings = shape | {"train_data": [str(rows)], "dtype": "float32", "save_strategy": "no"} | options
        assert recipe_runs.run_here(recipe_runs.configure(folder, **settings)) is None
        return folder / "out"

    return train


@pytest.fixture(scope="session")
def whole_judge(train_on_words, tmp_path_factory):
    """A judge whose weights were all trained."""
    base = tmp_path_factory.mktemp("base")
    texts = [text_of(sample) + reply_of(sample) for sample in map(word_sample, range(300))]
    make_base(texts, base, hidden_size=192, layers=2, heads=6, vocab_size=400, max_positions=512, seed=0)
    enough = {"num_train_epochs": 12, "learning_rate": 0.005, "warmup_steps": 0.1}
    return train_on_words("whole", model_name_or_path=str(base), **enough)


@pytest.fixture(scope="session")
def adapted(train_on_words, whole_judge):
    """Train an adapter on the judge; its folder."""

    def train(name, **options):
        lora = {"use_peft": True, "lora_r": 8, "lora_alpha": 32, "lora_target_modules": ["all-linear"]}
        enough = {"num_train_epochs": 4, "warmup_steps": 0.1}
        return train_on_words(name, opposite=True, model_name_or_path=str(whole_judge), **(lora | enough | options))

    return train


@pytest.fixture(scope="session")
def merged_with(tmp_path_factory):
    """Merge an adapter by the recipe, in float32; the new judge's folder."""

    def merge(adapter):
        out = tmp_path_factory.mktemp("merged") / "judge"
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "argv", ["merge_lora.py", str(adapter), "-o", str(out), "--dtype", "float32"])
            runpy.run_path(str(recipe_runs.ROOT / "train/merge_lora.py"), run_name="__main__")
        return out

    return merge


@pytest.fixture(scope="session")
def lora(adapted, merged_with):
    """A LoRA adapter, and the judge it makes with its base."""
    adapter = adapted("lora")
    return adapter, merged_with(adapter)
