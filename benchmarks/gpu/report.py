"""The tables of a GPU's results, from `gpu.json`. Standard library only."""

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.step_runner import table

Results = Mapping[str, Any]


def page(results: Mapping[str, Results]) -> str:
    """All steps that are there, in Markdown; a step that did not end well says so above its table."""
    parts = ["# Figures of a GPU\n"]
    if any(step.get("tiny") for step in results.values()):
        parts.append("A rehearsal with tiny shapes: none of these figures says anything about a GPU.\n")
    for name, step in results.items():
        parts.append(f"## {name}\n")
        if step.get("state") != "done":
            parts.append(f"**{step.get('state')}**; what it had measured by then:\n")
        parts.append(_SECTIONS[name.partition("-")[0]](step))
    return "\n".join(parts)


def _facts(step: Results) -> str:
    devices = step.get("devices", {})
    gpus = [f"{gpu['name']}, {gpu['memory_total_bytes'] / 2**30:.0f} GiB" for gpu in devices.get("cuda", ())]
    rows = [
        ("GPU", "; ".join(gpus) or "none"),
        ("driver; CUDA of torch", f"{devices.get('driver')}; {step.get('cuda_build')}"),
        ("versions", ", ".join(f"{name} {version}" for name, version in step.get("versions", {}).items() if version)),
        ("attention packages", ", ".join(step.get("attention_packages", ())) or "none"),
        (f"square product, {step.get('dtype')}, TFLOP/s", _tera(step.get("square_product_flops"))),
    ]
    for name, flops in step.get("layer_products_flops", {}).items():
        rows.append((f"products of a {name} layer, {step['layer_products_tokens']} tokens, TFLOP/s", _tera(flops)))
    bandwidth = step.get("copy_bytes_per_s")
    rows.append(("copy, bytes read and written, TB/s", _tera(bandwidth)))
    return table(("what", "found"), rows)


def _tier(step: Results) -> str:
    tests = step.get("tests", {})
    rows = [(name, test["outcome"], f"{test['seconds']:.1f}") for name, test in tests.items()]
    return table(("test", "outcome", "s"), rows)


def _precision(step: Results) -> str:
    rows = []
    for name, entry in step.items():
        if isinstance(entry, dict) and "replies" in entry:
            rows += [
                (f"{name}: replies that differ", f"{entry['replies_differ']} of {entry['replies']}"),
                (f"{name}: verdicts that differ", f"{entry['verdicts_differ']} of {entry['verdicts']}"),
                (
                    f"{name}: P(first better) apart, mean; 99 % within; most (n = {entry['probabilities']})",
                    "; ".join(_short(entry[f"probability_apart_{key}"]) for key in ("mean", "p99", "most")),
                ),
            ]
        elif isinstance(entry, dict) and "prompts" in entry:
            rows += [
                (f"{name}: likeliest digit differs", f"{entry['likeliest_digit_differs']} of {entry['prompts']}"),
                (
                    f"{name}: a digit's probability apart, mean; most",
                    "; ".join(_short(entry[f"probability_apart_{key}"]) for key in ("mean", "most")),
                ),
            ]
    rows.append(("pairs; scored in float32", f"{step.get('pairs')}; {step.get('float32_scored')}"))
    return table(("what", "found"), rows)


def _judging(step: Results) -> str:
    heads = (
        "system",
        "pairs/s",
        "written tokens/s",
        "tokens a pair",
        "share of a layer's products",
        "of a square product",
    )
    rows = [
        (
            name,
            _range(entry["pairs_per_s"]),
            _range(entry["written_tokens_per_s"]),
            f"{entry['tokens_per_prompt']:.0f}",
            _percent(entry["share_of_layer_products_flops"]),
            _percent(entry["share_of_square_product_flops"]),
            _range(entry["engine_one_order_against_it"]),
        )
        for name, entry in step.get("summary", {}).items()
    ]
    note = (
        "Medians of the rounds, in brackets their range. Shares count 2 x parameters that meet each prompt token x "
        "prompt tokens; what both orders share is read once and counted twice.\n"
    )
    return table((*heads, "engine, one order, against it"), rows) + "\n" + note


def _sft(step: Results) -> str:
    rows = [
        (
            name,
            entry.get("error") or f"{entry['tokens_per_s']:.0f}",
            "" if "error" in entry else _percent(entry["share_of_layer_products_flops"]),
            "" if "error" in entry else _percent(entry["share_of_square_product_flops"]),
            f"{entry['peak_bytes'] / 2**30:.1f}" if entry.get("peak_bytes") else "",
        )
        for name, entry in step.get("variants", {}).items()
    ]
    heads = ("variant", "tokens/s", "MFU against a layer's products", "against a square product", "peak GiB")
    note = (
        f"{step.get('recipe')}. MFU counts 6 (all weights) or 4 (LoRA) x parameters without the input embedding x "
        "tokens; recomputation excluded.\n"
    )
    return table(heads, rows) + "\n" + note


_SECTIONS = {"facts": _facts, "tier": _tier, "precision": _precision, "judging": _judging, "sft": _sft}


def _tera(value: float | None) -> str:
    return "" if value is None else f"{value / 1e12:.3g}"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _short(value: float | None) -> str:
    return "none" if value is None else f"{value:.2g}"


def _range(values: Sequence[float]) -> str:
    median, least, most = values
    return f"{median:.3g} ({least:.3g} to {most:.3g})"
