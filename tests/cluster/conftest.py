"""A Ray of two cores on this machine, whose workers know the engines of `tests/support/fragile_engine.py`."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def ray_cluster():
    ray = pytest.importorskip("ray", reason="ray is not installed: pip install -e '.[ray]'")
    environment = {
        "env_vars": {"PYTHONPATH": str(ROOT)},
        "worker_process_setup_hook": "tests.support.fragile_engine.install",
    }
    ray.init(
        "local", num_cpus=2, include_dashboard=False, log_to_driver=False, object_store_memory=100 << 20,
        runtime_env=environment,
    )  # fmt: skip
    yield
    ray.shutdown()
