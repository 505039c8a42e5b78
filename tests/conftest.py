"""What tests share: a tiny random judge made on the spot, and where the real data lies."""

import importlib.util
import os
import signal
from pathlib import Path

import hypothesis
import pytest

hypothesis.settings.register_profile("busy", deadline=None)  # time is not what properties are about; hangs time out
hypothesis.settings.load_profile("busy")
os.environ["COLUMNS"] = "200"  # a console takes its width when it is made, and long paths would wrap
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell's background job ignores it, and so would our processes
    signal.signal(signal.SIGINT, signal.default_int_handler)
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # as many processes as cores: more threads would only wait

SHARED_DATA = Path(__file__).parents[1].parent / "shared" / "data"

WORDS = (
    "what is the capital of france paris london a big red fox jumps over lazy dogs because it can 1 2 3 4 5 6 7 8 9 10"
)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real data beside the checkout."""
    if not SHARED_DATA.is_dir():
        pytest.skip("the real data is not there: no ../shared/data beside this checkout")
    return SHARED_DATA


@pytest.fixture(scope="session")
def device() -> str:
    """Where tests marked `gpu` run: CUDA, or what JUDGELM_GPU_TESTS says, to rehearse them on the CPU."""
    import torch

    name = os.environ.get("JUDGELM_GPU_TESTS", "cuda")
    if name == "cuda" and not torch.cuda.is_available():
        pytest.skip("no CUDA device; JUDGELM_GPU_TESTS=cpu rehearses it")
    return name


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory) -> Path:
    """A Llama of two layers with random weights and a byte-level tokenizer; it writes nonsense, always the same."""
    from judgelm.training.tiny_model import make_base

    folder = tmp_path_factory.mktemp("tiny") / "model"
    make_base([WORDS] * 20, folder, hidden_size=64, layers=2, heads=2, vocab_size=400, max_positions=512, seed=0)
    return folder


@pytest.fixture(scope="session")
def vicuna(tmp_path_factory) -> Path:
    """A folder of the shape of `lmsys/vicuna-7b-v1.3`: pickled shards and `tokenizer.model` alone; random weights."""
    from tests.support.vicuna_folders import make_vicuna

    return make_vicuna(tmp_path_factory.mktemp("lmsys") / "vicuna")


@pytest.fixture(scope="session")
def tiny_judge(tiny_model, tmp_path_factory) -> Path:
    """`tiny_model`, taught to write score lines (the number of words of each answer) and a reason."""
    from tests.support.tiny_judges import train_judge

    return train_judge(tiny_model, tmp_path_factory.mktemp("tiny_judge") / "judge")


@pytest.fixture(scope="session")
def tiny_adapters(tiny_judge, tmp_path_factory) -> tuple[Path, Path]:
    """Two LoRA adapters for `tiny_judge`, with random weights that change what it writes."""
    from tests.support.tiny_judges import make_adapter

    folder = tmp_path_factory.mktemp("adapters")
    return make_adapter(tiny_judge, folder / "one", seed=1), make_adapter(tiny_judge, folder / "two", seed=2)


@pytest.fixture(scope="session")
def vllm_engine(tiny_judge):
    """The one vLLM of the session, in this process, with room for adapters."""
    if importlib.util.find_spec("vllm") is None:
        pytest.skip("vllm is not installed: `make test` installs it")
    import llvmlite.binding  # noqa: F401 (vLLM must start where numba was imported before it)

    from judgelm.engines.base import EngineOptions
    from judgelm.engines.catalog import load_engine

    arguments = {"enable_lora": True, "max_loras": 4, "max_lora_rank": 8, "kv_cache_memory_bytes": 1 << 28}
    engine = load_engine("vllm", EngineOptions(model=str(tiny_judge), engine_args=arguments))
    yield engine
    engine.close()


@pytest.fixture
def judge_cache(tmp_path, monkeypatch) -> Path:
    """An empty cache of judgelm's own."""
    monkeypatch.setenv("JUDGELM_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def small_judge(tiny_model, judge_cache) -> Path:
    """The small judge as if installed, with tiny weights; the folder of its adapter."""
    from tests.support.named_judges import cached_adapter, cached_base

    cached_base(judge_cache, tiny_model)
    return cached_adapter(judge_cache, tiny_model)
