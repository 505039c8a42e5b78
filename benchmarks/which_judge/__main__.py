"""Which judge? One table of all judges that are known by name, from their cards and stored results.

    python -m benchmarks.which_judge

writes `docs/which-judge.md`, and the rows of the judges in `README_ROWS` into README.md.

Published figures are those of `published.yaml`, each with its source. Measured are the verdicts in `human_labels`. The
speed on GPUs is computed: judges that write their verdict first cost one prefill of `PAIR_TOKENS` tokens at the share
of peak that a 7B with random weights reached on one NVIDIA H200 (`docs/benchmarks.md`).
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from judgelm.judges.cards import card_names, gpu_bytes, judge_card
from judgelm.judges.released import Checkpoint, ReleasedJudge, released_judges

ROOT = Path(__file__).parents[2]
PAGE, README = ROOT / "docs/which-judge.md", ROOT / "README.md"
RESULTS = ROOT / "benchmarks/human_labels"
README_ROWS = {
    "qwen-1.5b": "a CPU (default)",
    "AtlaAI/Selene-1-Mini-Llama-3.1-8B": "a 24 GB GPU",
    "opencompass/CompassJudger-2-32B-Instruct": "an 80 GB GPU",
}
"""Judges in README, and the hardware that each is suggested for."""
BEGIN, END = "<!-- which judge: python -m benchmarks.which_judge -->", "<!-- end -->"
SETS = {"rewardbench": "RewardBench", "judgebench": "JudgeBench", "llmbar": "LLMBar", "pandalm": "PandaLM"}
VERDICT_FIRST = ("judgelm", "pandalm")
PAIR_TOKENS = 600
MEASURED = 46.4 * 2 * 6.74e9 * PAIR_TOKENS  # FLOP/s of the 7B on one H200
RTX_4090, H100 = "RTX 4090, 24 GB", "H100, 80 GB"
GPUS = {RTX_4090: (24.0, 165e12), H100: (80.0, 989e12)}
"""GB, and peak FLOP/s in bfloat16 without sparsity, by NVIDIA's data sheets: GeForce RTX 4090, H100 SXM (as H200)."""
A100_PEAK = 312e12
SHARE = MEASURED / GPUS[H100][1]
GPU_HOUR = 3.0
"""Dollars for an H100 of 80 GB: list prices of 2.49 to 3.99 in 2026 (pricegpu.pages.dev, read on 2026-11-27)."""
GPT_PRICE = (2.0, 8.0)
"""Dollars a million tokens of GPT-4.1, prompt and reply (losclouds.com, verified there on 2026-04-02)."""
REPLY_TOKENS = 150
Row = dict[str, str]


NOTES = """\
- **RewardBench, JudgeBench, LLMBar, PandaLM**: scores in percent. For released judges, these are published results
  under each source's protocol; we have not reproduced them. Figures in bold are our own results on pairs with a winner
  ([Judges](judges.md#the-default-judge)). Be careful when you compare figures within a column. For example, the
  published JudgeBench figures count a pair as wrong if the judge's two orders disagree.
- **GB**: size of the weights in bfloat16 (on disk, for the judges that judgelm installs) and in 4 bits. Add 20 % for
  activations. To list the judges that fit on a GPU, use `judgelm judges --vram 24`.
- **CPU, RTX 4090, H100**: pairs per hour in one order. CPU figures were measured on PandaLM pairs, using two shared
  cores of a Xeon with AMX. GPU figures are estimates for {tokens}-token pairs on an RTX 4090 (165 TFLOP/s) and an H100.
  These estimates assume the same share of peak performance as measured for a 7B model with random weights on one H200
  ({share} of 989 TFLOP/s, 46.4 pairs/s). An A100 (312 TFLOP/s) judges {a100} times as many pairs as an H100. `fits`
  means that the bfloat16 weights fit, but that we have no speed estimate. `4 bits` means that only 4-bit weights fit.
- **10,000 pairs**: cost on an H100 at ${hour} per hour (list prices in 2026: $2.49 to $3.99). GPT-4.1 costs ${call:.0f}
  for the same pairs with {reply}-token replies, at $2 and $8 per million tokens (list price, April 2026)."""


def published() -> dict[tuple[str, str], Mapping[str, Any]]:
    """The published figures, by checkpoint and set."""
    rows = yaml.safe_load((Path(__file__).parent / "published.yaml").read_text(encoding="utf-8"))
    return {(row["id"], row["set"]): row for row in rows}


def own_rows() -> Iterator[Row]:
    """The judges that judgelm installs by name."""
    sets = json.loads((RESULTS / "results.json").read_text(encoding="utf-8"))["sets"]
    for name in card_names():
        card = judge_card(name)
        row = {
            "judge": name,
            "size": card.base.name,
            "GB, 4-bit": f"{card.base.disk_megabytes / 1e3:.1f}, -",
            "licence": card.adapter.licence if card.adapter else card.base.licence,
        }
        for each in SETS:
            measured = sets.get(each, {}).get("judges", {}).get(name)
            row[each] = f"**{measured['figures']['decided']['value']:.1%}**".replace("%", "") if measured else "-"
        yield row | _speed_on_cpu(name) | dict.fromkeys(GPUS, "fits")


def _speed_on_cpu(name: str) -> Row:
    """Pairs an hour on the CPU that judged PandaLM's pairs, where the time was recorded."""
    stored = RESULTS / "verdicts" / name / "pandalm.json"
    run = json.loads(stored.read_text(encoding="utf-8")) if stored.is_file() else {}
    return {"CPU": _thousands(len(run["first_better"]) / run["seconds"] * 3600)} if run.get("seconds") else {}


def released_rows(figures: Mapping[tuple[str, str], Mapping[str, Any]]) -> Iterator[Row]:
    """The released judges, each checkpoint by itself."""
    for judge in released_judges():
        for model in judge.checkpoints:
            known = {name: figures.get((model.id, name)) for name in SETS}
            shown = {name: "-" if fact is None else f"{fact['percent']:.1f}" for name, fact in known.items()}
            memory = f"{model.gigabytes('bfloat16'):.0f}, {model.gigabytes('4bit'):.0f}"
            row = {"judge": model.id, "size": f"{model.parameters:g}B", "GB, 4-bit": memory}
            yield row | {"licence": model.licence or "not stated"} | shown | _speed(judge, model)


def _speed(judge: ReleasedJudge, model: Checkpoint) -> Row:
    """Pairs an hour, and dollars for 10,000 pairs, where the verdict comes first; where it fits a GPU."""
    speeds: Row = {}
    for gpu, (memory, peak) in GPUS.items():
        fits = gpu_bytes(model.gigabytes("bfloat16")) <= memory
        if not fits:
            speeds[gpu] = "4 bits" if gpu_bytes(model.gigabytes("4bit")) <= memory else "no"
        elif judge.name in VERDICT_FIRST:
            speeds[gpu] = _thousands(SHARE * peak / (2 * model.parameters * 1e9 * PAIR_TOKENS) * 3600)
        else:
            speeds[gpu] = "fits"
    if speeds[H100].endswith(",000"):
        speeds["10,000 pairs"] = f"${10_000 / int(speeds[H100].replace(',', '')) * GPU_HOUR:.2f}"
    return {"CPU": "-"} | speeds


def _thousands(pairs: float) -> str:
    return f"{round(pairs, -3):,.0f}"


def table(rows: Sequence[Row]) -> list[str]:
    """The rows in Markdown."""
    heads = ("judge", "size", "GB, 4-bit", "licence", *SETS, "CPU", *GPUS, "10,000 pairs")
    names = [SETS.get(head, head) for head in heads]
    lines = [f"| {' | '.join(names)} |", f"|{'---|' * len(heads)}"]
    return lines + [f"| {' | '.join(row.get(head, '-') for head in heads)} |" for row in rows]


def page(rows: Sequence[Row], figures: Mapping[tuple[str, str], Mapping[str, Any]]) -> str:
    """The page with all judges, and the sources."""
    call = (PAIR_TOKENS * GPT_PRICE[0] + REPLY_TOKENS * GPT_PRICE[1]) / 1e6 * 10_000
    sources: dict[str, list[str]] = {}
    for (model, name), fact in figures.items():
        computed = ", computed" if fact.get("computed") else ""
        sources.setdefault(fact["source"], []).append(f"{model} ({SETS[name]}, by {fact['by']}{computed})")
    notes = NOTES.format(
        share=f"{SHARE:.0%}",
        a100=f"{A100_PEAK / GPUS[H100][1]:.2f}",
        tokens=PAIR_TOKENS,
        reply=REPLY_TOKENS,
        hour=f"{GPU_HOUR:g}",
        call=call,
    )
    head = ["# Which judge?", "", f"`{BEGIN[18:-4]}` builds this page from the judges' cards and stored results.", ""]
    listed = [f"- {source}: {'; '.join(models)}" for source, models in sorted(sources.items())]
    return "\n".join([*head, *table(rows), "", notes, "", "## Sources of the published figures", "", *listed, ""])


def readme_with(text: str, rows: Sequence[Row]) -> str:
    """README with the rows of a few judges between the marks."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    lines = ["| judge | for | weights, GB | licence | RewardBench, % |", "|---|---|---|---|---|"]
    judges = {row["judge"]: row for row in rows}
    for name, hardware in README_ROWS.items():
        row = judges[name]
        gigabytes = row["GB, 4-bit"].split(",")[0]
        lines.append(f"| {name} | {hardware} | {gigabytes} | {row['licence']} | {row.get('rewardbench', '-')} |")
    return "\n".join([before + BEGIN, "", *lines, "", END + after])


def main() -> None:
    """Write both."""
    figures = published()
    rows = [*own_rows(), *released_rows(figures)]
    PAGE.write_text(page(rows, figures), encoding="utf-8")
    README.write_text(readme_with(README.read_text(encoding="utf-8"), rows), encoding="utf-8")


if __name__ == "__main__":
    main()
