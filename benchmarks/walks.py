"""Count the files of judgelm/ in which a function runs during one command.

    python -m benchmarks.walks [--json FILE]

Follows the three walks of docs/architecture.md: one SFT step on a tiny model with random weights, a batch run with the
resulting judge, and one request to a server with a scripted judge. Imports and the server's start are not counted.
"""

import argparse
import contextlib
import importlib.metadata
import inspect
import io
import json
import os
import runpy
import signal
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from benchmarks.tiny_model import make_base

ROOT = Path(__file__).parents[1]
PORT = 8765


class CalledFiles:
    """Record the files of judgelm/ whose functions are called, in all threads of this process."""

    def __init__(self) -> None:
        self.files: set[str] = set()
        self.recording = False
        self._seen: set[CodeType] = set()

    def _profile(self, frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if not self.recording or event != "call" or code in self._seen or "/judgelm/" not in code.co_filename:
            return
        if code.co_flags & inspect.CO_OPTIMIZED and not _is_importing(frame):  # neither a module's nor a class's body
            self._seen.add(code)
            self.files.add(str(Path(code.co_filename).relative_to(ROOT)))

    @contextlib.contextmanager
    def installed(self, *, recording: bool = True) -> Iterator[None]:
        """Watch calls in this thread and in threads started in the block."""
        threading.setprofile(self._profile)
        sys.setprofile(self._profile)
        self.recording = recording
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)  # type: ignore[arg-type]


def _is_importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            return True
        frame = frame.f_back
    return False


def _run(start: Any, *argv: str) -> None:
    """Call an entry point with these arguments and hide its output."""
    before, sys.argv = sys.argv, list(argv)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            start()
    except SystemExit as end:
        if end.code:
            raise
    finally:
        sys.argv = before


def _command(name: str) -> Any:
    [entry] = importlib.metadata.entry_points(group="console_scripts", name=name)
    return entry.load()


def walk_sft(folder: Path) -> CalledFiles:
    """Train one optimiser step from a tiny base; the judge is in `folder / "judge"`."""
    words = ["what is the capital of france paris london a big red fox 1 2 3 4 5 6 7 8 9 10"] * 20
    make_base(words, folder / "base", hidden_size=64, layers=2, heads=2, vocab_size=400, max_positions=2048, seed=0)
    rows = [json.loads(line) for line in (ROOT / "examples/pairs.jsonl").read_text(encoding="utf-8").splitlines()]
    rows = [{"id": row["id"], "question": "q?", "answers": ["a b", "c"], "scores": [8, 5]} for row in rows]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    settings = {
        "model_name_or_path": str(folder / "base"), "train_data": [str(folder / "rows.jsonl")],
        "output_dir": str(folder / "judge"), "template": "judgelm-compact", "max_length": 512, "max_steps": 1,
        "per_device_train_batch_size": 4, "use_cpu": True, "bf16": False, "gradient_checkpointing": False,
        "report_to": "none", "disable_tqdm": True, "dataset_num_proc": 1,
    }  # fmt: skip
    (folder / "sft.yaml").write_text(json.dumps(settings))
    called = CalledFiles()
    script = str(ROOT / "train/sft.py")
    with called.installed():
        _run(lambda: runpy.run_path(script, run_name="__main__"), script, "--config", str(folder / "sft.yaml"))
    return called


def walk_batch(folder: Path) -> CalledFiles:
    """Judge the example pairs in both orders with the transformers engine."""
    called = CalledFiles()
    command = _command("judgelm-batch")
    options = ("--model", str(folder / "judge"), "--engine", "transformers", "--both-orders", "--max-failure-rate", "1")
    with called.installed():
        _run(command, "judgelm-batch", str(ROOT / "examples/pairs.jsonl"), "-o", str(folder / "out.jsonl"), *options)
    return called


def walk_request() -> CalledFiles:
    """Send one judging request through OpenAI's API, from the socket to the reply."""
    called = CalledFiles()
    client = threading.Thread(target=_ask, args=(called,))
    client.start()
    with called.installed(recording=False):
        options = ("--engine", "scripted", "--port", str(PORT), "--name", "gpt-4")
        _run(_command("judgelm"), "judgelm", "serve", "8 6", *options)
    client.join()
    return called


def _ask(called: CalledFiles) -> None:
    prompt = (
        "[Question]\nWhat is the capital of France?\n\n"
        "[The Start of Assistant 1's Answer]\nParis\n\n[The End of Assistant 1's Answer]\n\n"
        "[The Start of Assistant 2's Answer]\nLondon\n\n[The End of Assistant 2's Answer]\n\n"
        "[System]\nWe would like to request your feedback on the performance of two AI assistants in response to the "
        "user question displayed above.\nPlease rate the helpfulness, relevance, accuracy, level of details of their "
        "responses. Each assistant receives an overall score on a scale of 1 to 10, where a higher score indicates "
        "better overall performance.\nPlease first output a single line containing only two values indicating the "
        "scores for Assistant 1 and 2, respectively. The two scores are separated by a space. In the subsequent line, "
        "please provide a comprehensive explanation of your evaluation, avoiding any potential bias and ensuring that "
        "the order in which the responses were presented does not affect your judgment."
    )
    system = "You are a helpful and precise assistant for checking the quality of the answer."
    messages = [{"role": "system", "content": system}, {"role": "user", "content": prompt}]
    body = {"model": "gpt-4", "messages": messages, "max_tokens": 32}
    url = f"http://127.0.0.1:{PORT}"
    try:
        for _ in range(600):
            with contextlib.suppress(OSError), urllib.request.urlopen(f"{url}/v1/models") as reply:
                reply.read()
                break
            time.sleep(0.1)
        called.recording = True
        data, headers = json.dumps(body).encode(), {"Content-Type": "application/json"}
        with urllib.request.urlopen(urllib.request.Request(f"{url}/v1/chat/completions", data, headers)) as reply:
            reply.read()
    finally:
        called.recording = False
        os.kill(os.getpid(), signal.SIGINT)


def main() -> None:
    """Print the files that run in each walk."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="write the files of each walk there")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        walks = {"sft": walk_sft(folder), "batch": walk_batch(folder), "request": walk_request()}
    for walk, called in walks.items():
        print(f"{walk}: {len(called.files)} files")
        for file in sorted(called.files):
            print(f"  {file}")
    if asked.json:
        files = {walk: sorted(called.files) for walk, called in walks.items()}
        asked.json.write_text(json.dumps(files, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
