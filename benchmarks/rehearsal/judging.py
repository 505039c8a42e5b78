"""Steps that judge: engines, adapters, the server, Ray workers, GPUs; by `judgelm-batch` and `judgelm serve`."""

import asyncio
import json
import urllib.request
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.rehearsal.plan import STEPS
from benchmarks.rehearsal.step import TEMPLATE, Setting, check, versions_of
from benchmarks.step_runner import step_command

_CLIENTS = 256
_MAX_DIFFERENCE, _APART_MEAN = 0.5, 0.1
"""How far P(first better) of a prompt may lie apart in two runs, as shares of its range over all prompts. The judge is
random: where a cache or an adapter mixes prompts up, the difference is of the size of the range."""
_TREES = ("--both-orders", "--distribution", "--order-rule", "probability")
RUNNERS = ({"VLLM_USE_V2_MODEL_RUNNER": "1"}, {"VLLM_USE_V2_MODEL_RUNNER": "0"})
FP8 = "fp8_per_tensor"
"""Quantises while loading; vLLM's `fp8` is for checkpoints that are FP8 already."""
_SAMPLED = ("--temperature", 0.7, "--seed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Rows of a run by id, its summary (`--json`), and its file; None for replies of a server."""

    rows: Mapping[str, Mapping[str, Any]]
    summary: Mapping[str, Any]
    file: Path | None = None

    def replies(self) -> dict[tuple[str, int], str]:
        """Texts by id and order."""
        return {(name, order): shown["text"] for name, row in self.rows.items()
                for order, shown in enumerate(row["shown"])}  # fmt: skip

    def chances(self) -> dict[tuple[str, int], float]:
        """P(first better) of each prompt by its score tree, by id and order."""
        return {(name, order): shown["distribution"]["first_better"] for name, row in self.rows.items()
                for order, shown in enumerate(row["shown"]) if shown.get("distribution")}  # fmt: skip

    def rates(self) -> dict[str, float]:
        """Pairs and prompt tokens a second, without loading."""
        return {"pairs/s": self.summary["samples_per_s"], "prompt tokens/s": self.summary["prompt_tokens_per_s"]}


def batch(
    setting: Setting, pairs: Path, model: Path, engine: str, *flags: object,
    environment: Mapping[str, str] | None = None, trained: bool = False, unread: float = 0.0,
) -> Batch:  # fmt: skip
    """Judge a file by `judgelm-batch` and check that each pair has its judgment.

    Args:
        setting: where.
        pairs: the file.
        model: folder of the judge.
        engine: `transformers` or `vllm`.
        flags: more of them.
        environment: more variables.
        trained: take the template from the judge's card.
        unread: share of pairs whose reply may be unreadable: that of a random judge is, now and then, if sampled.
    """
    out, summary = (setting.folder / f"judgments-{len(setting.commands)}.{kind}" for kind in ("jsonl", "json"))
    command = [*step_command("judgelm", "batch"), pairs, "-o", out, "--json", summary]
    command += ["--model", model, "--engine", engine]
    command += [*([] if trained else ["--template", TEMPLATE]), "--max-failure-rate", unread]
    if engine == "transformers":
        command += ["--device", setting.device]
    elif setting.device == "cpu":
        command += ["--engine-arg", f"kv_cache_memory_bytes={1 << 27}"]
    setting.run(*command, *flags, environment=environment)
    result = Batch(rows=by_id(out), summary=json.loads(summary.read_text(encoding="utf-8")), file=out)
    count = len(pairs.read_text(encoding="utf-8").splitlines())
    failures = result.summary["failures"]
    check(len(result.rows) == count, f"{len(result.rows)} judgments of {count} pairs")
    check("engine" not in failures, f"the engine failed: {failures}")
    return result


def by_id(file: Path) -> dict[str, dict[str, Any]]:
    """Rows of a run file."""
    return {row["id"]: row for row in map(json.loads, file.read_text(encoding="utf-8").splitlines())}


def differences(first: Batch, second: Batch) -> dict[str, Any]:
    """Counts of replies and verdicts that differ, the range of P(first better), and how far that lies apart."""
    replies, others = first.replies(), second.replies()
    chances = second.chances()
    apart = [abs(chance - chances[key]) for key, chance in first.chances().items() if key in chances]
    return {
        "replies": len(replies), "replies differ": sum(text != others[key] for key, text in replies.items()),
        "verdicts differ": sum(row["verdict"] != second.rows[key]["verdict"] for key, row in first.rows.items()),
        "P range": max(chances.values(), default=0.0) - min(chances.values(), default=0.0),
        "P apart, most": max(apart, default=None), "P apart, mean": sum(apart) / len(apart) if apart else None,
    }  # fmt: skip


def check_alike(found: Mapping[str, Any], what: str) -> None:
    """Check that two runs differ by the rounding of the numeric format alone."""
    check(found["replies differ"] <= 0.01 * found["replies"], f"{what}: {found}")
    if found["P apart, most"] is not None:
        check(found["P apart, most"] <= _MAX_DIFFERENCE * found["P range"], f"{what}: {found}")
        check(found["P apart, mean"] <= _APART_MEAN * found["P range"], f"{what}: {found}")


def facts(setting: Setting) -> None:
    """Versions of all packages that a step needs."""
    versions = versions_of(package for step in STEPS.values() for package in step.packages)
    setting.save({"versions": versions, "figures": {name: each or "absent" for name, each in versions.items()}})


def engine(setting: Setting, *, engine: str) -> None:
    """Score trees in both orders, the prefix cache on and off, and sampling with the same seed and another."""
    pairs, base = setting.pairs(12 if setting.tiny else 512), setting.base("judge")
    trees = batch(setting, pairs, base, engine, *_TREES)
    chances = trees.chances()
    check(len(chances) == 2 * len(trees.rows), f"{len(chances)} score trees of {2 * len(trees.rows)} prompts")
    figures = {"pairs": len(trees.rows), **trees.rates()}
    if engine == "vllm":
        uncached = ("--engine-arg", "enable_prefix_caching=false")
        found = differences(trees, batch(setting, pairs, base, engine, *_TREES, *uncached))
        figures |= {f"without prefix cache: {name}": value for name, value in found.items()}
        setting.save({"figures": figures})
        check_alike(found, "the prefix cache changes judgments")
    first, same, other = (batch(setting, pairs, base, engine, *_SAMPLED, seed, unread=0.01)
                          for seed in (1, 1, 2))  # fmt: skip
    repeated, drawn = (differences(first, run)["replies differ"] for run in (same, other))
    setting.save({"figures": figures | {"same seed: replies differ": repeated, "other seed: replies differ": drawn}})
    check(repeated <= 0.01 * len(first.rows), f"the same seed gives {repeated} other replies of {len(first.rows)}")
    check(drawn > 0, "another seed gives the same replies")


def runners(setting: Setting) -> None:
    """Both model runners of vLLM, each by name: its own choice depends on the machine."""
    pairs, base = setting.pairs(512), setting.base("judge")
    v2, v1 = (batch(setting, pairs, base, "vllm", *_TREES, environment=runner) for runner in RUNNERS)
    found = differences(v2, v1)
    rates = {"V2 pairs/s": v2.rates()["pairs/s"], "V1 pairs/s": v1.rates()["pairs/s"]}
    setting.save({"figures": {"pairs": len(v2.rows), **rates, **found}})
    check_alike(found, "Model Runner V2 judges otherwise than V1")


def fp8(setting: Setting) -> None:
    """FP8 weights, then FP8 keys and values too, against bfloat16."""
    pairs, base = setting.pairs(512), setting.base("judge")
    plain = batch(setting, pairs, base, "vllm", *_TREES)
    figures: dict[str, Any] = {"pairs": len(plain.rows), "bf16 pairs/s": plain.rates()["pairs/s"]}
    flags: tuple[str, ...] = ()
    for name, argument in (("FP8", f"quantization={FP8}"), ("FP8 with its cache", "kv_cache_dtype=fp8")):
        flags += ("--engine-arg", argument)
        run = batch(setting, pairs, base, "vllm", *_TREES, *flags)
        found = {key: value for key, value in differences(plain, run).items() if key != "replies"}
        figures |= {f"{name}: {key}": value for key, value in ({"pairs/s": run.rates()["pairs/s"]} | found).items()}
        setting.save({"figures": figures})


def adapters(setting: Setting, *, engine: str) -> None:
    """Two adapters, each put on its base by `judgelm-batch`, and both beside one base in the server."""
    from benchmarks.rehearsal.training import train

    pairs = setting.pairs(8 if setting.tiny else 64)
    shape = {"lora_r": 8, "learning_rate": 5e-3, "dtype": setting.dtype}
    folders = [train(setting, "judgelm_7b_lora", f"adapter-{seed}", seed=seed, **shape).folder for seed in (1, 2)]
    runs = [batch(setting, pairs, folder, engine, *_TREES, trained=True, unread=1.0) for folder in folders]
    between = differences(*runs)
    judges = [f"--judge=judge-{index}={folder}" for index, folder in enumerate(folders)]
    bodies = [body | {"judge": f"judge-{index}"} for body in requests(pairs) for index in range(2)]
    with serving(setting, setting.base("train"), engine, *judges) as (url, _), ThreadPoolExecutor(16) as threads:
        replies = list(threads.map(lambda body: ask(url, body), bodies))
    served = [
        Batch(rows={row["id"]: row for row in replies[index::2]}, summary={}) for index in range(2)
    ]  # fmt: skip
    found = [differences(run, own) for run, own in zip(runs, served, strict=True)]
    names = ("replies differ", "verdicts differ", "P apart, most")
    figures = {f"served, judge {index}: {name}": each[name] for index, each in enumerate(found) for name in names}
    setting.save(
        {"figures": {"pairs": len(runs[0].rows), "between the judges: P apart": between["P apart, most"]} | figures}
    )
    check((between["P apart, most"] or 0) > 0, f"the adapters judge alike, which says nothing: {between}")
    for each in found:
        check_alike(each, "served with other adapters it judges otherwise")


def requests(pairs: Path) -> list[dict[str, Any]]:
    """Bodies of /v1/judge, one for each pair of a file."""
    rows = map(json.loads, pairs.read_text(encoding="utf-8").splitlines())
    options = {"both_orders": True, "distribution": True, "order_rule": "probability"}
    return [{"id": row["id"], "question": row["question"], "answer_1": row["answers"][0],
             "answer_2": row["answers"][1], "options": options} for row in rows]  # fmt: skip


def ask(url: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """The reply to a body."""
    request = urllib.request.Request(f"{url}/judge", json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=300) as reply:
        return json.loads(reply.read())


def serving(setting: Setting, model: Path, engine: str, *flags: str) -> Any:
    """The server of `benchmarks.server_load` for this device."""
    from benchmarks.server_load import server

    own = ["--device", setting.device] if engine == "transformers" else []
    if engine == "vllm" and setting.device == "cpu":
        own = ["--engine-arg", f"kv_cache_memory_bytes={1 << 27}"]
    setting.commands.append(f"judgelm serve {model.name} --engine {engine} {' '.join([*own, *flags])}")
    setting.save({"commands": setting.commands})
    return server(str(model), "--engine", engine, *own, *flags)


def server(setting: Setting, *, engine: str) -> None:
    """256 clients, who each ask as soon as they are answered; no request may be lost, refused or mixed up."""
    from benchmarks.server_load import Question, load

    bodies = requests(setting.pairs(_CLIENTS if setting.tiny else 8 * _CLIENTS))
    questions = [Question("/v1/judge", json.dumps(body).encode(), f'"id": "{body["id"]}"'.encode()) for body in bodies]
    with serving(setting, setting.base("judge"), engine) as (url, process):
        asyncio.run(load(url, questions[:8], 8))
        row = asyncio.run(load(url, questions, _CLIENTS)).row()
    row["exit_code"] = process.returncode
    setting.save({"figures": {"clients": _CLIENTS} | row})
    check(row["answered"] == len(questions) and not row["errors"] + row["wrong"] + row["lost"], str(row))
    check(process.returncode in (0, -15), f"the server ended with exit code {process.returncode}")


def shared_gpu(setting: Setting, *, engine: str) -> None:
    """Two workers on one GPU, which Ray takes for two; each has less than half of its memory. On a CPU two cores."""
    pairs, base = setting.pairs(12 if setting.tiny else 512), setting.base("judge")
    alone = batch(setting, pairs, base, engine, *_TREES)
    flags: list[object] = ["--workers", 2, "--worker-cores", 1]
    environment = {"RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES": "1"}
    if setting.device == "cuda":
        flags += ["--gpus", 2]
        environment["CUDA_VISIBLE_DEVICES"] = "0"
        flags += ["--engine-arg", "gpu_memory_utilization=0.4"] if engine == "vllm" else []
    else:
        flags += ["--ray", "local"]
    several(setting, alone, batch(setting, pairs, base, engine, *_TREES, *flags, environment=environment))


def each_gpu(setting: Setting) -> None:
    """A worker on each GPU against one GPU."""
    pairs, base = setting.pairs(12 if setting.tiny else 2048), setting.base("judge")
    alone = batch(setting, pairs, base, "transformers", *_TREES)
    flags: Sequence[object] = ["--gpus", setting.gpus]
    if setting.device == "cpu":
        flags = ["--ray", "local", "--workers", setting.gpus, "--worker-cores", 1]
    several(setting, alone, batch(setting, pairs, base, "transformers", *_TREES, *flags))


def tensor_parallel(setting: Setting, *, large: bool = False) -> None:
    """One judge over all GPUs against one GPU; a large one alone."""
    pairs, base = setting.pairs(12 if setting.tiny else 512), setting.base("large" if large else "judge")
    gpus = next(count for count in (8, 4, 2) if count <= setting.gpus)  # heads must divide
    flags = ("--engine-arg", f"tensor_parallel_size={gpus}")
    alone = batch(setting, pairs, base, "vllm", *_TREES)
    several(setting, alone, batch(setting, pairs, base, "vllm", *_TREES, *flags))


def several(setting: Setting, alone: Batch, together: Batch) -> None:
    """Record and check several workers or GPUs against one."""
    found = differences(alone, together)
    rates = {"alone: pairs/s": alone.rates()["pairs/s"], "together: pairs/s": together.rates()["pairs/s"]}
    setting.save({"figures": {"pairs": len(alone.rows), **rates, **found}})
    check_alike(found, "several workers judge otherwise than one")
