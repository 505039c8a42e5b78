"""Rate and memory of `judgelm-batch` from ten thousand to a million pairs, with the scripted engine.

    python -m benchmarks.batch_memory [--most 1000000]

Measures everything except the model: reading, templates, parsing, and writing each judgment immediately. Memory is the
process's peak. The ID index, which detects duplicates, grows with the input and is reported separately.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path

FEW = 10_000
TARGET_RATE, TARGET_GROWTH_MB, TARGET_INDEX_MB = 10_000, 50, 128


def main() -> None:
    """Run both sizes and compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--most", type=int, default=1_000_000)
    most = parser.parse_args().most
    with tempfile.TemporaryDirectory() as folder:
        few, many = (run(Path(folder), count) for count in (FEW, most))
    index_mb = index_bytes(most) / 1e6
    results = {
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
        "runs": [few, many],
        "index_mb_per_million": round(index_mb * 1e6 / most, 1),
        "growth_without_index_mb": round(many["peak_mb"] - few["peak_mb"] - index_mb, 1),
    }
    print(json.dumps(results, indent=1))
    assert many["judgments_per_s"] >= TARGET_RATE, "slower than the target"
    assert results["growth_without_index_mb"] < TARGET_GROWTH_MB, "memory is not flat"
    assert results["index_mb_per_million"] <= TARGET_INDEX_MB, "the index is too large"


def run(folder: Path, count: int) -> dict[str, float]:
    """Judge `count` pairs in a separate process."""
    pairs, out = folder / f"{count}.jsonl", folder / f"{count}.out.jsonl"
    write_pairs(pairs, count)
    code = "import resource, sys\nfrom judgelm.cli.batch import app\ntry:\n    app()\nexcept SystemExit as end:\n"
    code += "    print(end.code or 0, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)\n"
    command = [sys.executable, "-c", code, str(pairs), "-o", str(out), "--engine", "scripted", "--model", "8 6", "-q"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert printed[0] == "0", printed
    [session] = json.loads((folder / f"{count}.out.run.json").read_text())["sessions"]
    assert session["judged"] == count
    return {
        "pairs": count,
        "seconds": round(session["judge_s"], 2),
        "judgments_per_s": round(session["samples_per_s"]),
        "peak_mb": round(int(printed[1]) / 1e3, 1),
    }


def write_pairs(path: Path, count: int) -> None:
    """Return distinct plain pairs of about 500 bytes."""
    answer = "It stands in the old part of the town, near the river, and was built for a queen. " * 2
    with path.open("w", encoding="utf-8") as file:
        for pair_index in range(count):
            row = {
                "id": f"pair-{pair_index}",
                "question": f"Where does building pair_index {pair_index} stand, and whom was it built for?",
                "answer_1": f"{answer}({pair_index})",
                "answer_2": f"Nobody knows where pair_index {pair_index} stands. {answer}",
            }
            file.write(json.dumps(row) + "\n")


def index_bytes(count: int) -> int:
    """Return the bytes of the ID index, a set of 64-bit hashes."""
    index = {hash(f"pair-{pair_index}") for pair_index in range(count)}
    return sys.getsizeof(index) + sum(sys.getsizeof(value) for value in index)


if __name__ == "__main__":
    main()
