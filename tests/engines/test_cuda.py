"""The transformers engine on a CUDA device; JUDGELM_GPU_TESTS=cpu runs the same tests on the CPU."""

import pytest

from judgelm.engines.base import EngineOptions
from judgelm.engines.catalog import load_engine
from judgelm.modes import Pairwise
from judgelm.records import Request, Sampling
from judgelm.runs.runner import judge
from tests.support.driving import prompt_of, run
from tests.support.tiny_judges import TEMPLATE, make_adapter, word_sample

pytestmark = pytest.mark.gpu


def engine_on(device, model, **options):
    return load_engine("transformers", EngineOptions(model=str(model), device=device, **options))


def requests(count, **options):
    texts = ("a big fox jumps " * (i % 7 + 1) for i in range(count))
    return [Request(key=str(i), prompt=prompt_of(text), sampling=Sampling(max_tokens=8), **options)
            for i, text in enumerate(texts)]  # fmt: skip


def judged(device, model, **options):
    """Thirty pairs of word counts, both orders, with P(first better)."""
    engine = engine_on(device, model, **options)
    mode = Pairwise(template=TEMPLATE, both_orders=True, distribution=True)
    samples = [word_sample(seed) for seed in range(30)]
    judgments = {judgment.sample_id: judgment for judgment in judge(samples, mode, engine)}
    engine.close()
    assert all(judgment.failure is None for judgment in judgments.values())
    return judgments


def test_float32_equals_the_cpu(device, tiny_judge):
    on_cpu, on_device = (judged(place, tiny_judge, dtype="float32") for place in ("cpu", device))
    for name, expected in on_cpu.items():
        assert [reply.text for reply in on_device[name].shown] == [reply.text for reply in expected.shown]
        assert on_device[name].probability == pytest.approx(expected.probability, abs=1e-3)


def test_bfloat16_keeps_nearly_all_verdicts_of_float32(device, tiny_judge):
    full, half = (judged(device, tiny_judge, dtype=dtype) for dtype in ("float32", "bfloat16"))
    apart = [abs(half[name].probability - judgment.probability) for name, judgment in full.items()]
    # 8 bits of mantissa: some near-ties fall the other way, and a probability moves by some hundredths
    assert sum(half[name].verdict == judgment.verdict for name, judgment in full.items()) >= 24
    assert sum(apart) / len(apart) < 0.1


def test_an_adapter_runs_in_bfloat16(device, tiny_judge, tmp_path):
    adapter = make_adapter(tiny_judge, tmp_path / "adapter", seed=1)
    plain = run(engine_on(device, tiny_judge, dtype="bfloat16"), requests(8))
    adapted = run(engine_on(device, tiny_judge, dtype="bfloat16", adapter=str(adapter)), requests(8))
    assert {completion.finish_reasons for completion in adapted.values()} <= {("stop",), ("length",)}
    assert [adapted[key].texts for key in adapted] != [plain[key].texts for key in adapted]
