"""Step `tier`: the tests marked `gpu`, each with its outcome."""

import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

from benchmarks.gpu.step import Save, Setting

ROOT = Path(__file__).resolve().parents[2]


def measure(setting: Setting, save: Save) -> None:
    """Run them; what failed is in the results, with its last lines."""
    file = setting.scratch / "tests.xml"
    # no others: most of them import packages that this machine need not have
    files = [str(path) for path in sorted((ROOT / "tests").rglob("test_*.py")) if "mark.gpu" in path.read_text("utf-8")]
    command = [sys.executable, "-m", "pytest", "-m", "gpu", *files, "-p", "no:cacheprovider", f"--junitxml={file}"]
    done = subprocess.run(command, cwd=ROOT, env=os.environ | {"JUDGELM_GPU_TESTS": setting.device}, check=False)
    outcomes = {}
    for case in ElementTree.parse(file).iter("testcase"):
        name = f"{case.get('classname')}::{case.get('name')}"
        finding = next((child for child in case if child.tag in ("failure", "error", "skipped")), None)
        outcomes[name] = {"seconds": float(case.get("time", 0)), "outcome": "passed"}
        if finding is not None:
            outcomes[name] |= {"outcome": finding.tag, "why": (finding.text or finding.get("message") or "")[-1500:]}
    save({"tests": outcomes})
    if done.returncode:
        sys.exit(f"pytest ended with {done.returncode}")
