"""What tests share: a tiny random judge made on the spot, and where the real data lies."""

import gc
import importlib.util
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import hypothesis
import pytest
from filelock import FileLock
from xdist.scheduler import LoadScopeScheduling

# time is not what properties are about; hangs time out
hypothesis.settings.register_profile("default-tier", deadline=None, max_examples=30)
hypothesis.settings.register_profile("slow-tier", deadline=None, max_examples=100)
hypothesis.settings.load_profile("default-tier")
os.environ["COLUMNS"] = "200"  # a console takes its width when it is made, and long paths would wrap
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell's background job ignores it, and so would our processes
    signal.signal(signal.SIGINT, signal.default_int_handler)
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # as many processes as cores: more threads would only wait
    os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")  # on a new machine vLLM's sampler would compile for half a minute

SHARED_DATA = Path(__file__).parents[1].parent / "shared" / "data"

WORDS = (
    "what is the capital of france paris london a big red fox jumps over lazy dogs because it can 1 2 3 4 5 6 7 8 9 10"
)


LONGEST = ("training", "vllm")


def group_of(test: str) -> str:
    """Tests that one process runs: those of a file; all with vLLM; all that train or read the help of what trains."""
    path = test.partition("::")[0].removeprefix("tests/")
    if "/vllm/" in path or "[vllm" in test or "test_vllm" in test:
        return "vllm"
    if path.startswith(("training/", "packaging/test_scripts")) or "test_snippets.py::test_every_command" in test:
        return "training"
    return test if path.startswith("docs/") else path  # pages know nothing of each other


def pytest_collection_modifyitems(items):
    """Begin with the groups that take longest."""
    items.sort(key=lambda item: (*LONGEST, group := group_of(item.nodeid)).index(group))


def pytest_collection_finish():
    """Leave what was imported out of garbage collection: with torch, TRL and vLLM each takes more than a second."""
    gc.collect()
    gc.freeze()


class GroupScheduling(LoadScopeScheduling):
    """Gives a process whole groups (xdist's own `loadgroup` has no effect on pytest 9.2, whose node ids are fixed)."""

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)


def pytest_xdist_make_scheduler(config, log):
    """What xdist uses in place of `--dist`."""
    return GroupScheduling(config, log)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real data beside the checkout."""
    if not SHARED_DATA.is_dir():
        pytest.skip("the real data is not there: no ../shared/data beside this checkout")
    return SHARED_DATA


@pytest.fixture(scope="session")
def made_once(tmp_path_factory):
    """Make a folder once a run: the first worker makes it, the others wait and read it."""
    root = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        root = root.parent

    def make(name, maker) -> Path:
        folder, finished = root / "made_once" / name, root / "made_once" / f"{name}.finished"
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(folder.with_name(f"{folder.name}.lock")):
            if not finished.exists():
                maker(folder)
                finished.touch()
        return folder

    return make


@pytest.fixture(scope="session")
def device() -> str:
    """Where tests marked `gpu` run: CUDA, or what JUDGELM_GPU_TESTS says, to rehearse them on the CPU."""
    import torch

    name = os.environ.get("JUDGELM_GPU_TESTS", "cuda")
    if name == "cuda" and not torch.cuda.is_available():
        pytest.skip("no CUDA device; JUDGELM_GPU_TESTS=cpu rehearses it")
    return name


@pytest.fixture(scope="session")
def tiny_model(made_once) -> Path:
    """A Llama of two layers with random weights and a byte-level tokenizer; it writes nonsense, always the same."""
    from benchmarks.tiny_model import make_base

    shape = {"hidden_size": 64, "layers": 2, "heads": 2, "vocab_size": 400, "max_positions": 512}
    return made_once("tiny/model", lambda folder: make_base([WORDS] * 20, folder, seed=0, **shape))


@pytest.fixture(scope="session")
def vicuna(made_once) -> Path:
    """A folder of the shape of `lmsys/vicuna-7b-v1.3`: pickled shards and `tokenizer.model` alone; random weights."""
    from tests.support.vicuna_folders import make_vicuna

    return made_once("lmsys/vicuna", make_vicuna)


@pytest.fixture(scope="session")
def tiny_judge(tiny_model, made_once) -> Path:
    """`tiny_model`, taught to write score lines (the number of words of each answer) and a reason."""
    from tests.support.tiny_judges import train_judge

    return made_once("tiny/judge", lambda folder: train_judge(tiny_model, folder))


@pytest.fixture(scope="session")
def tiny_reward_model(tiny_model, made_once) -> Path:
    """`tiny_model` with a random sequence-classification head of one number."""
    from tests.support.tiny_judges import make_reward_model

    return made_once("tiny/reward", lambda folder: make_reward_model(tiny_model, folder))


@pytest.fixture(scope="session")
def tiny_chat(tiny_model, made_once) -> Path:
    """`tiny_model` with a chat template."""
    from tests.support.tiny_judges import make_chat_model

    return made_once("tiny/chat", lambda folder: make_chat_model(tiny_model, folder))


@pytest.fixture(scope="session")
def tiny_adapters(tiny_judge, made_once) -> tuple[Path, Path]:
    """Two LoRA adapters for `tiny_judge`, with random weights that change what it writes."""
    from tests.support.tiny_judges import make_adapter

    first, second = (
        made_once(f"adapters/{name}", lambda folder, seed=seed: make_adapter(tiny_judge, folder, seed=seed))
        for name, seed in (("one", 1), ("two", 2))
    )
    return first, second


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
def little_memory(monkeypatch) -> Iterator[None]:
    """A machine with 2 GB of free memory, on which the small judge is the default."""
    from judgelm.judges.cards import this_machine

    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(available=2 * 10**9, total=4 * 10**9))
    this_machine.cache_clear()
    yield
    this_machine.cache_clear()


@pytest.fixture
def small_judge(tiny_model, judge_cache, little_memory) -> Path:
    """The small judge as if installed, with tiny weights, and the default; the folder of its adapter."""
    from tests.support.named_judges import cached_adapter, cached_base

    cached_base(judge_cache, tiny_model)
    return cached_adapter(judge_cache, tiny_model)
