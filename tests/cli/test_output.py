"""`--json` and `--quiet`; the frozen heap during a run."""

import gc
import json

from judgelm.cli.run import run
from judgelm.judge import Judge
from judgelm.runs.batch import BatchJob


def test_json_has_the_counts_and_quiet_prints_nothing_else(batch, pairs, tmp_path):
    counts_file = tmp_path / "found.json"
    code, printed, err = batch(pairs(3), "--quiet", "--json", counts_file)
    assert (code, printed, err) == (0, "", "")
    counts = json.loads(counts_file.read_text())
    assert (counts["judged"], counts["winners"], counts["failure_rate"]) == (3, {"1": 3}, 0.0)
    code, printed, err = batch(pairs(3), "--quiet", "--json", "-")
    assert (json.loads(printed)["skipped"], err) == (3, "")


def test_start_up_objects_are_excluded_from_garbage_collection(pairs, tmp_path):
    frozen = []
    job = BatchJob(inputs=(str(pairs(3)),), out=str(tmp_path / "out.jsonl"))
    with Judge("8 6", engine="scripted") as judge:
        run(job, judge, judge.mode("pair"), look=lambda judgment: frozen.append(gc.get_freeze_count()))
    assert len(frozen) == 3
    assert min(frozen) > 10_000
    assert gc.get_freeze_count() == 0
