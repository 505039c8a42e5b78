"""A Ray of two cores on this machine, whose workers know the engines of `tests/support/fragile_engine.py`."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def ray_cluster():
    ray = pytest.importorskip("ray", reason="ray is not installed: pip install -e '.[ray]'")
    hook = {"worker_process_setup_hook": "tests.support.fragile_engine.install"}
    options = {"runtime_env": hook | {"env_vars": {"PYTHONPATH": str(ROOT)}}, "object_store_memory": 100 << 20}
    ray.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False, **options)
    yield
    ray.shutdown()
