"""Installs real judging clients, each by itself, below .conformance/: what `make conformance` then runs.

    python tests/conformance/build_clients.py            all of them
    python tests/conformance/build_clients.py ragas      one

A client that cannot be installed is named, with its log; its tests skip and say so. What is there stays as it is until
its requirements change. Nothing of it is ever imported here: the clients' versions of openai, pydantic and others
contradict each other.
"""

import json
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / ".conformance"

PYTHON_CLIENTS = {
    "arena_hard": ["openai==3.57.0", "pandas==2.3.3", "shortuuid", "tqdm", "boto3", "requests", "pyyaml"],
    "alpaca_eval": ["alpaca_eval==0.6.6", "setuptools<81"],
    "autoevals": ["autoevals==0.4.1", "openai==3.57.0"],
    "deepeval": ["deepeval==4.3.1"],
    "dspy": ["dspy==3.4.1"],
    "fastchat": ["fschat==0.2.36", "openai==0.28.1", "anthropic==0.19.2", "psutil==7.2.2"],
    "flow_judge": ["flow-judge==0.1.2", "openai==3.57.0"],
    "inspect_ai": ["inspect_ai==0.3.285", "openai==3.57.0"],
    "instructor": ["instructor==1.17.0"],
    "langchain": ["langchain-classic==1.0.8", "langchain-openai==1.7.4"],
    "langfuse": ["langfuse==5.0.4"],
    "langsmith": ["langsmith==0.15.1", "openevals==0.2.2"],
    "lm_eval": ["lm_eval[api]==0.4.13", "openai==3.57.0"],
    "mlflow": ["mlflow==3.17.2", "openai==3.57.0", "litellm==1.110.2"],
    "openai_python": ["openai==3.57.0"],
    "openrlhf": ["openrlhf==0.11.2", "pylatexenc", "levenshtein"],
    "openevals": ["openevals==0.2.2"],
    "opik": ["opik==2.2.122"],
    "phoenix": ["arize-phoenix-evals==3.9.4", "openai==3.57.0"],
    "prometheus_eval": ["prometheus-eval==0.1.20", "litellm==1.110.2"],
    "ragas": ["ragas==0.4.3", "langchain-community==0.4.1"],
    "slime": ["pylatexenc", "httpx"],
    "trulens": ["trulens-core==2.13.1", "trulens-feedback==2.13.1", "trulens-providers-openai==2.13.1"],
    "verifiers": ["verifiers==0.4.0"],
    "verl": [
        *("verl==0.9.1", "tensordict==0.15.3", "omegaconf==2.4.0", "antlr4-python3-runtime==4.9.3"),
        *("hydra-core==1.3.8", "codetiming==1.4.0", "pyvers", "orjson", "cloudpickle"),
    ],
}
BESIDE_OURS = {"openrlhf", "slime", "verifiers", "verl"}
"""These also see the packages of this environment, because they import judgelm, torch, or Ray."""
WITHOUT_DEPENDENCIES = {"openrlhf", "verl"}
"""Its torch, Ray and transformers are those of this environment."""
SOURCE_CLIENTS = {  # files of a repository at a commit, next to the packages of the same name
    "arena_hard": (
        "https://github.com/lmarena/arena-hard-auto",
        "196f6b826783b3da7310e361a805fa36f0be83f3",
        ["gen_judgment.py", "show_result.py", "utils", "config"],
    ),
    "slime": ("https://github.com/THUDM/slime", "624b824a898ab0ec1fcb4d373004c7f3852bf515", ["slime"]),
    "langfuse_server": (
        "https://github.com/langfuse/langfuse",
        "62751446149b702b419a9292ddfc2280cdf74b8c",
        ["worker/src/constants/managed-evaluators.json"],
    ),
}
NODE_CLIENTS = {
    "langfuse_server": ["ai@7.0.8", "@ai-sdk/openai-compatible@3.0.3", "zod@4.3.6"],  # as in its pnpm-lock.yaml
    "openai_node": ["openai@7.57.0"],
    "promptfoo": ["promptfoo@0.123.1", "node@22.23.3"],
}


def build(name: str) -> str:
    """Install one client; what became of it, in words."""
    wanted = [*(PYTHON_CLIENTS | NODE_CLIENTS)[name], *SOURCE_CLIENTS.get(name, ())[:2]]
    wanted += ["beside judgelm"] if name in BESIDE_OURS else []
    folder, stamp = FOLDER / name, FOLDER / name / "requirements.json"
    if stamp.is_file() and json.loads(stamp.read_text()) == wanted:
        return "is there"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    if name in NODE_CLIENTS and shutil.which("npm") is None:
        return "left out: npm is not here"
    with open(FOLDER / f"{name}.log", "w", encoding="utf-8") as log:
        for command in _commands(name, folder):
            if subprocess.run(command, stdout=log, stderr=subprocess.STDOUT, check=False).returncode:
                return f"cannot be installed, see {log.name}"
    stamp.write_text(json.dumps(wanted))
    return "installed"


def _commands(name: str, folder: Path) -> list[list[str]]:
    if name in NODE_CLIENTS:
        install = ["npm", "install", "--prefix", str(folder), "--no-audit", "--no-fund", *NODE_CLIENTS[name]]
        return [install, *_sources(name, folder)]
    python = str(folder / "venv" / "bin" / "python")
    alone = ["--no-deps"] if name in WITHOUT_DEPENDENCIES else []
    commands = [
        [sys.executable, "-m", "venv", str(folder / "venv")],
        [python, "-m", "pip", "install", "--quiet", *alone, *PYTHON_CLIENTS[name]],
    ]
    if name in BESIDE_OURS:
        seen = "\\n".join([sysconfig.get_paths()["purelib"], str(ROOT)])
        write = f"import sysconfig; open(sysconfig.get_paths()['purelib'] + '/ours.pth', 'w').write('{seen}')"
        commands.append([python, "-c", write])
    return [*commands, *_sources(name, folder)]


def _sources(name: str, folder: Path) -> list[list[str]]:
    if name not in SOURCE_CLIENTS:
        return []
    address, commit, paths = SOURCE_CLIENTS[name]
    source = str(folder / "source")
    return [
        ["git", "clone", "--filter=blob:none", "--no-checkout", address, source],
        ["git", "-C", source, "checkout", commit, "--", *paths],
    ]


def main() -> None:
    """Build what is named, or all."""
    for name in sys.argv[1:] or sorted(PYTHON_CLIENTS | NODE_CLIENTS):
        sys.stderr.write(f"{name}: {build(name)}\n")


if __name__ == "__main__":
    main()
