"""A resumed run compares the texts of each finished id with its input: standard input, pipes, images, cascades."""

import json
import os
import subprocess
from dataclasses import replace

import pytest
import torch

from benchmarks.tiny_model import make_base
from judgelm import Judge
from judgelm.data.judged_texts import text_hashes
from judgelm.engines.scripted import ScriptedEngine
from judgelm.errors import InputError, RunError
from judgelm.modes import Pairwise, make_mode
from judgelm.records import Judgment, PairVerdict, Sample, Unparsed
from judgelm.runs.batch import BatchHooks, BatchJob, run_batch, run_dtype
from judgelm.runs.run_files import FinishedIds, input_identities, latest_judgments, read_judgments
from judgelm.runs.runner import judge
from judgelm.runs.stored_judgments import StoredJudgments
from judgelm.runs.teacher import RowWriter, TeacherPrompts
from tests.support.batch_runs import BATCH, judged_rows, manifest, write_pairs
from tests.support.jsonl_files import rows_of, write_rows
from tests.support.judged_items import write_run


def pair(key="1", **fields):
    return {"id": key, "question": "q", "answer_1": "good", "answer_2": "bad"} | fields


@pytest.fixture
def batch(tmp_path):
    """Judge rows as one pipe after another would bring them: the input has one name and no known content."""

    def judge(*rows, mode=None, **options):
        source = str(write_rows(tmp_path / "in.jsonl", rows))
        path = tmp_path / "out.run.json"
        if path.exists():  # the manifest names the input as it is now: only the hashes tell them apart
            content = json.loads(path.read_text())
            content["fingerprint"]["input"] = input_identities([source])
            path.write_text(json.dumps(content))
        job = BatchJob(inputs=(source,), out=str(tmp_path / "out.jsonl"), **options)
        return run_batch(job, mode or Pairwise(), ScriptedEngine({"*": "8 6\n"}), hooks=BatchHooks())

    return judge


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"question": "p"}, "the question"),
        ({"answer_1": "bad", "answer_2": "good"}, "the order of the answers"),
        ({"answer_2": "worse"}, "answer 2"),
        ({"answer_3": "more"}, "the number of answers"),
        ({"reference": "r"}, "the reference, an image, or other context"),
        ({"options": ["x", "y"]}, "the reference, an image, or other context"),
    ],
)
def test_other_texts_under_a_finished_id_are_another_input(batch, tmp_path, change, part):
    mode = make_mode("multi", {}) if "answer_3" in change else None
    batch(pair("0"), pair(), mode=mode)
    before = (tmp_path / "out.jsonl").read_bytes()
    with pytest.raises(RunError, match=f'{part} for id "1" has changed; choose another -o'):
        batch(pair("0"), pair(**change), mode=mode)
    assert (tmp_path / "out.jsonl").read_bytes() == before
    assert batch(pair("0"), pair(), pair("2"), mode=mode).skipped == 2
    assert batch(pair(**change), mode=mode, overwrite=True).judged == 1


def test_fields_that_no_judge_is_shown_may_change_and_an_image_may_not(batch, tmp_path):
    batch(pair(category="math", note="a"))
    assert batch(pair(category="prose", winner=1)).skipped == 1
    (tmp_path / "chart.png").write_bytes(b"1")
    batch(pair(image="chart.png"), overwrite=True)
    (tmp_path / "chart.png").write_bytes(b"22")
    with pytest.raises(RunError, match='an image for id "1"'):
        batch(pair(image="chart.png"))


def test_run_files_without_hashes_are_refused_with_the_way_out(batch, tmp_path):
    batch(pair(), pair("2"))
    out = tmp_path / "out.jsonl"
    write_rows(out, [{key: value for key, value in row.items() if key != "hashes"} for row in rows_of(out)])
    with pytest.raises(RunError, match=r'the text for id "1" has changed; .*--overwrite'):
        batch(pair(), pair("2"))
    assert len(read_judgments(out)) == 2  # they can still be evaluated


def test_sixteen_bytes_are_kept_for_each_id_and_the_last_row_counts(tmp_path):
    samples = [Sample(id=str(index % 700), question=f"q{index}", answers=("a", "b")) for index in range(1000)]
    judgments = [
        Judgment(sample_id=each.id, mode="pair", verdict=PairVerdict(winner=1), shown=(), hashes=text_hashes(each))
        for each in samples
    ]
    judgments[999] = replace(judgments[999], verdict=None, failure=Unparsed("off_grammar", ""))
    out = write_run(tmp_path / "out.jsonl", judgments)
    finished = FinishedIds(out)
    assert (len(finished), finished.failures) == (700, {"off_grammar": 1})
    assert finished._ids.nbytes + finished._digests.nbytes == 16 * 700
    assert all(finished.holds(each) for each in samples[300:])
    assert "7000" not in finished
    assert len(FinishedIds(out, "failed")) == 699
    with pytest.raises(RunError, match='the question for id "0"'):
        finished.holds(samples[0])
    failed = Judgment(sample_id="1", mode="pair", verdict=None, shown=(), failure=Unparsed("engine", "", "down"))
    finished = FinishedIds(write_run(tmp_path / "failed.jsonl", [failed]))  # it is judged again and needs no hashes
    assert not finished.holds(Sample(id="1", question="q", answers=("a", "b")))


def test_a_file_of_two_runs_is_no_run(tmp_path, batch):
    batch(pair())
    (tmp_path / "first.jsonl").write_bytes((tmp_path / "out.jsonl").read_bytes())
    batch(pair(question="p"), overwrite=True)
    with (tmp_path / "first.jsonl").open("ab") as both:
        both.write((tmp_path / "out.jsonl").read_bytes())
    with pytest.raises(InputError, match='id "1" has judgments of different texts'):
        read_judgments(tmp_path / "first.jsonl")
    assert len(list(latest_judgments(tmp_path / "out.jsonl"))) == 1


def test_rows_of_a_teacher_are_made_of_the_texts_it_judged(tmp_path):
    prompts = TeacherPrompts(both_orders=True)
    sample = Sample(id="1", question="q", answers=("good", "bad"))
    judgments = list(judge(prompts(sample), Pairwise(), ScriptedEngine({"q|good|bad": "8 6", "q|bad|good": "6 8"})))
    writer = RowWriter(prompts, StoredJudgments(write_run(tmp_path / "out.jsonl", judgments)))
    assert writer.row(sample)["score"] == [8, 6]
    with pytest.raises(InputError, match='id "1": the order of the answers'):
        writer.row(replace(sample, answers=("bad", "good")))


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bfloat16")
    shape = {"hidden_size": 64, "layers": 1, "heads": 2, "vocab_size": 300, "max_positions": 512, "seed": 0}
    make_base(["a b a b"], folder, **shape, dtype=torch.bfloat16)
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


@pytest.mark.slow
def test_a_run_goes_on_in_its_own_format_on_another_cpu_unless_another_is_asked_for(begun):
    command, out = begun
    job = BatchJob(inputs=(str(command[1]),), out=str(out))
    assert run_dtype(job, "auto", "transformers") == "float32"
    assert run_dtype(job, "bfloat16", "transformers") == "bfloat16"  # and the run is refused as another one
    assert run_dtype(job, "auto", "openai") == "auto"  # a server's model has no format of ours
    for other in (replace(job, overwrite=True), replace(job, out=f"{out}.new.jsonl")):
        assert run_dtype(other, "auto", "transformers") == "auto"
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "resuming: 2 samples" in done.stderr
    resumed = manifest(out)
    assert resumed["fingerprint"]["engine"]["dtype"] == "float32"
    assert [session["engine"]["notes"][:1] for session in resumed["sessions"]][1:] == [[]]  # nothing was chosen again
    assert resumed["sessions"][0]["engine"]["notes"][0].startswith("dtype: float32 (")
    assert len(judged_rows(out)) == 6


@pytest.mark.slow
def test_a_judge_that_was_loaded_in_another_format_is_loaded_again(begun, model):
    command, out = begun
    with Judge(str(model), engine="transformers") as judge:
        assert any(note.startswith("dtype: ") for note in judge.notes)
        judge.judge_file(str(command[1]), out=str(out))
        assert judge.engine.describe()["dtype"] == "float32"
    assert len(judged_rows(out)) == 6
