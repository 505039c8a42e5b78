"""A run's numeric format is chosen once: it goes on in it on a CPU that would choose another.

The first session runs where oneDNN is told to use AVX2 alone, as on a CPU without bfloat16 instructions.
"""

import os
import subprocess

import pytest
import torch

from judgelm import Judge
from judgelm.runs.batch import BatchJob, run_dtype
from judgelm.training.tiny_model import make_base
from tests.support.batch_runs import BATCH, judged_rows, manifest, write_pairs

SHAPE = {"hidden_size": 64, "layers": 1, "heads": 2, "vocab_size": 300, "max_positions": 512, "seed": 0}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bfloat16")
    make_base(["a b a b"], folder, **SHAPE, dtype=torch.bfloat16)
    return folder


@pytest.fixture
def begun(model, tmp_path):
    """A run file of two judgments out of six, made where bfloat16 is emulated; the command that goes on with it."""
    pairs, out = write_pairs(tmp_path / "pairs.jsonl", 6), tmp_path / "out.jsonl"
    command = [BATCH, pairs, "-o", out, "--model", model, "--max-failure-rate", "1"]
    environment = os.environ | {"ONEDNN_MAX_CPU_ISA": "AVX2"}
    done = subprocess.run([*command, "--limit", "2"], env=environment, capture_output=True, text=True, check=True)
    assert "\ndtype: float32 (" in done.stderr
    return command, out


def test_a_run_goes_on_in_its_own_format_on_another_cpu(begun):
    command, out = begun
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "resuming: 2 samples" in done.stderr
    found = manifest(out)
    assert found["fingerprint"]["engine"]["dtype"] == "float32"
    assert [session["engine"]["notes"][:1] for session in found["sessions"]][1:] == [[]]  # nothing was chosen again
    assert found["sessions"][0]["engine"]["notes"][0].startswith("dtype: float32 (")
    assert len(judged_rows(out)) == 6


def test_a_judge_that_was_loaded_in_another_format_is_loaded_again(begun, model):
    command, out = begun
    with Judge(str(model), engine="transformers") as judge:
        assert any(note.startswith("dtype: ") for note in judge.notes)
        judge.judge_file(str(command[1]), out=str(out))
        assert judge.engine.describe()["dtype"] == "float32"
    assert len(judged_rows(out)) == 6


def test_what_was_asked_for_starts_over_and_servers_have_no_format_of_ours(begun):
    command, out = begun
    job = BatchJob(inputs=(str(command[1]),), out=str(out))
    assert run_dtype(job, "auto", "transformers") == "float32"
    assert run_dtype(job, "bfloat16", "transformers") == "bfloat16"  # and the run is refused as another one
    assert run_dtype(job, "auto", "openai") == "auto"
    assert run_dtype(BatchJob(inputs=(), out=str(out), overwrite=True), "auto", "transformers") == "auto"
    assert run_dtype(BatchJob(inputs=(), out=f"{out}.new.jsonl"), "auto", "transformers") == "auto"
