"""SmolLM2-135M-Instruct, the small judge's base: judged, trained, resumed, merged, tuned, alike on all engines."""

import gc
import json
import os
import signal
import subprocess
from pathlib import Path

import numpy as np
import pytest
from fastapi.testclient import TestClient

from judgelm import Judge
from judgelm.engines.gguf.checkpoint import checkpoint_of, gguf_record
from judgelm.errors import ModelError
from judgelm.judges.bases import download_base
from judgelm.judges.cards import judge_card
from judgelm.prompts.judge_card import find_card
from judgelm.records import Sample
from judgelm.runs.engine_worker import EngineWorker
from judgelm.runs.runner import judge
from judgelm.serving.app import create_app
from judgelm.serving.handler import HandlerOptions, JudgeHandler
from judgelm.serving.settings import ServerSettings
from tests.support.batch_runs import BATCH, judged_rows
from tests.support.in_process import exit_code
from tests.support.recipe_runs import configure, losses_of, merge_here, read_to_step, run_here, start, write_rows

EXAMPLES = Path(__file__).parents[2] / "examples/pairs.jsonl"


@pytest.fixture(scope="session")
def example_pairs():
    """Sixty pairs of everyday questions, with the winner: 1, 2 or "tie"."""
    return [json.loads(line) for line in EXAMPLES.read_text(encoding="utf-8").splitlines()]


@pytest.fixture(scope="session")
def base_gguf(tmp_path_factory):
    """The base's GGUF file, checked, with an empty cache for its checkpoint."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JUDGELM_CACHE", str(tmp_path_factory.mktemp("cache")))
        try:
            yield download_base(judge_card("small-judge"), "index", lambda doing, share: None)
        except ModelError as error:
            pytest.skip(f"the base's weights are not available here: {error}")


pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

TOLERANCE = 1e-3
"""Of P(first better) between engines."""
TEMPLATE = "judgelm-compact"
COUNT, STEPS, KILLED_AT, SAVED_AT = 4, 20, 12, 10


def judged(model, pairs):
    """Judge the pairs in both orders: replies, scores and probabilities; and by a server of the same judge."""
    with Judge(str(model), engine="transformers", template=TEMPLATE, dtype="float32", max_model_len=1024) as judge:
        judgments = [
            judge.compare(row["question"], row["answer_1"], row["answer_2"], distribution=True) for row in pairs
        ]
        described = judge.engine.describe()
        worker = EngineWorker(judge.engine)
        client = TestClient(
            create_app(JudgeHandler(judge, worker, HandlerOptions()), ServerSettings(model="judge")),
            base_url="http://localhost",
        )
        bodies = [{name: row[name] for name in ("question", "answer_1", "answer_2")} for row in pairs]
        reply = client.post("/v1/judge", json={"samples": bodies, "both_orders": True, "distribution": True})
        worker.close()
    gc.collect()
    replies = [[shown.text for shown in judgment.shown] for judgment in judgments]
    served = reply.json()["judgments"]
    assert [[shown["text"] for shown in row["shown"]] for row in served] == replies
    probabilities = [judgment.probability for judgment in judgments]
    assert [row["probability"] for row in served] == pytest.approx(probabilities, abs=TOLERANCE)
    return replies, [judgment.scores for judgment in judgments], probabilities, described


def judged_by_vllm(model, pairs, folder):
    """The same by `judgelm-batch` on vLLM, in a process of its own."""
    pytest.importorskip("vllm", reason="vllm is not installed: make test-slow installs its CPU build")
    source, out = folder / "pairs.jsonl", folder / "out.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in pairs), encoding="utf-8")
    command = [
        *(BATCH, source, "-o", out, "--model", model, "--engine", "vllm", "--template", TEMPLATE, "--both-orders"),
        *("--distribution", "--dtype", "float32", "--max-model-len", "1024", "--max-failure-rate", "1", "--overwrite"),
        *("--engine-arg", f"kv_cache_memory_bytes={1 << 28}"),
    ]
    subprocess.run([str(part) for part in command], check=True)
    rows = [judged_rows(out)[row["id"]] for row in pairs]
    replies = [[shown["text"] for shown in row["shown"]] for row in rows]
    scores = [tuple(row["scores"]) if row["scores"] else None for row in rows]
    return replies, scores, [row["probability"] for row in rows]


def training_rows(pairs):
    """9 and 3 for the better and the worse answer, 6 for both of a tie."""
    scores = {1: [9, 3], 2: [3, 9], "tie": [6, 6]}
    for row in pairs:
        answers = [row["answer_1"], row["answer_2"]]
        yield {"id": row["id"], "question": row["question"], "answers": answers, "scores": scores[row["winner"]]}


@pytest.fixture(scope="module")
def adapter(base_gguf, example_pairs, tmp_path_factory):
    """LoRA for 20 steps, killed after the twelfth, resumed from the tenth; the losses of both are compared."""
    folder = tmp_path_factory.mktemp("lora")
    rows = write_rows(folder / "rows.jsonl", training_rows(example_pairs))
    config = configure(
        folder, model_name_or_path=str(base_gguf), train_data=[rows],
        template=TEMPLATE, max_length=384, max_steps=STEPS, save_steps=SAVED_AT, per_device_train_batch_size=4,
        gradient_accumulation_steps=2, learning_rate=1e-3, use_peft=True, lora_r=8, lora_alpha=16,
        lora_target_modules=["all-linear"], dtype="float32",
    )  # fmt: skip
    killed = start(config)
    read_to_step(killed, KILLED_AT)
    os.killpg(killed.pid, signal.SIGKILL)
    killed.wait()
    assert run_here(config) is None
    return folder / "out"


def test_the_base_answers_alike_on_transformers_vllm_and_the_server(base_gguf, example_pairs, tmp_path):
    replies, *_, described = judged(base_gguf, example_pairs[:COUNT])
    assert described["model"]["gguf_sha256"] == judge_card("small-judge").base.gguf_sha256
    assert all(text.strip() for texts in replies for text in texts)
    assert judged_by_vllm(base_gguf, example_pairs[:COUNT], tmp_path)[0] == replies


def test_training_learns_resumes_and_names_its_base(adapter, base_gguf):
    losses = losses_of(adapter / f"checkpoint-{STEPS}")
    assert list(losses) == list(range(1, STEPS + 1))
    assert losses[STEPS] < 0.5 * losses[1]
    card, name = find_card(str(adapter)), base_gguf.name
    assert (card.base.file, card.base.gguf_sha256) == (name, judge_card("small-judge").base.gguf_sha256)
    assert card.training["base_model"] == name
    assert json.loads((adapter / "adapter_config.json").read_text())["base_model_name_or_path"] == name


def test_the_adapter_judges_alike_merged_and_on_vllm(adapter, example_pairs, tmp_path):
    merged = tmp_path / "merged"
    assert merge_here(adapter, merged, "--dtype", "float32") is None
    replies, scores, probabilities, described = judged(adapter, example_pairs[:COUNT])
    assert None not in probabilities, "after 20 steps it writes score lines"
    assert described["model"]["gguf_sha256"] == gguf_record(described["model"]["path"]).sha256
    assert judged(merged, example_pairs[:COUNT])[:2] == (replies, scores)
    for folder in (adapter, merged):
        same_replies, same_scores, same = judged_by_vllm(folder, example_pairs[:COUNT], tmp_path)
        assert (same_replies, same_scores) == (replies, scores)
        assert same == pytest.approx(probabilities, abs=TOLERANCE)


def small_judges_probabilities(pairs, dtype):
    """P(first better) of the pairs in a format, both orders of each."""
    adapter = EXAMPLES.parent / "small_judge/judgelm_small_judge"
    samples = [
        Sample(id=row["id"], question=row["question"], answers=(row["answer_1"], row["answer_2"])) for row in pairs
    ]
    with Judge(str(adapter), engine="transformers", device="cpu", dtype=dtype) as loaded:
        mode = loaded.pairwise(both_orders=True, order_rule="probability")
        by_id = {judgment.sample_id: judgment.probability for judgment in judge(samples, mode, loaded.engine)}
    return np.array([by_id[sample.id] for sample in samples], dtype=np.float64)


def test_bfloat16_moves_the_probability_as_little_as_measured(base_gguf, example_pairs):
    checkpoint_of(base_gguf)  # where the adapter's card looks for its base
    exact, rounded = (small_judges_probabilities(example_pairs, dtype) for dtype in ("float32", "bfloat16"))
    # on PandaLM 0.0049 (docs/judging.md); a logit rounded to a multiple of 1/8 alone moves P by 0.0114
    assert 0 < np.abs(rounded - exact).mean() < 0.01


def test_a_real_model_is_tuned_and_judges(base_gguf, example_pairs, tmp_path):
    folder, figures = tmp_path / "judge", tmp_path / "figures.json"
    options = ("--engine", "transformers", "--dtype", "float32", "--json", figures)
    assert exit_code("judgelm", "tune", base_gguf, "--labels", EXAMPLES, "-o", folder, *options) == 0
    tuned = json.loads(figures.read_text(encoding="utf-8"))
    assert tuned["n"] == len(example_pairs)
    assert set(tuned["candidates"]) == {"yes-no", "letters", "grade"}
    assert [each["failed"] for each in tuned["candidates"].values()] == [0, 0, 0]
    card = find_card(str(folder))
    assert (card.model, set(card.identity)) == (str(base_gguf.resolve()), {"gguf_sha256"})
    first = example_pairs[0]
    with Judge(str(folder), engine="transformers", dtype="float32") as judge:
        judgment = judge.compare(first["question"], first["answer_1"], first["answer_2"])
    [tuned_row] = [
        json.loads(line)
        for line in (folder / "candidates" / f"{card.template}.jsonl").read_text(encoding="utf-8").splitlines()
        if json.loads(line)["id"] == first["id"]
    ]
    odds = [shown.log_odds for shown in judgment.shown]
    assert odds == pytest.approx([shown.get("log_odds") for shown in tuned_row["shown"]], abs=1e-3)
