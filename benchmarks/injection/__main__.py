"""Attack a template's prompt and the parser, or a judge: what gets out of its block, and what moves a verdict.

    python -m benchmarks.injection
    python -m benchmarks.injection --model my-judge --seconds 10 --json FILE

Exit code 1 if an attack gets out of its block.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.injection.attacks import AttackCheck, check_attacks, measure_attack_success
from judgelm.engines.base import EngineOptions
from judgelm.engines.catalog import choose_engine
from judgelm.judge import Judge
from judgelm.judges.resolve import DEFAULT_TEMPLATE
from judgelm.metrics.resampling import Estimate
from judgelm.modes import Pairwise
from judgelm.prompts.catalog import get_template

_MAX_SHOWN = 20


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the outcome; 1 if an attack gets through."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="judge to attack: its tokens and its verdicts too")
    parser.add_argument("--engine", default="auto")
    parser.add_argument("--template", help="prompt template; default: the model card's")
    parser.add_argument(
        "--seconds", type=float, default=10.0, help="how long attacked pairs are judged; 0 leaves it out"
    )
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args(arguments)
    judge, tokenizer = None, None
    mode = Pairwise(template=get_template(options.template or DEFAULT_TEMPLATE).id)
    if options.model:
        engine = choose_engine()[0] if options.engine == "auto" else options.engine
        judge = Judge(options.model, engine=engine, template=options.template)
        mode, tokenizer = judge.pairwise(), _tokenizer(options.model, engine)
    checked = check_attacks(get_template(mode.template), tokenizer)
    _print_checks(mode.template, checked, with_tokens=tokenizer is not None)
    report: dict[str, Any] = {
        "template": mode.template,
        "model": options.model,
        "attacks": [asdict(check) for check in checked],
    }
    if judge is not None:
        with judge:
            if options.seconds:
                report["success"] = _measure(judge, mode, checked, options.seconds)
    if options.json:
        options.json.write_text(json.dumps(report, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    return int(any(check.escapes for check in checked))


def _tokenizer(model: str, engine: str) -> Any:
    """The model's own, where an engine runs it here."""
    if engine not in {"transformers", "vllm"}:
        return None
    from judgelm.engines.model_files import load_tokenizer, split_adapter  # loads transformers

    options = EngineOptions(model=model)
    return load_tokenizer(*split_adapter(options), options)


def _print_checks(template: str, checked: Sequence[AttackCheck], *, with_tokens: bool) -> None:
    looked_at = "its special tokens and role markers too" if with_tokens else "no model, so no tokens"
    print(f"attacks on {template} and the parser; {looked_at}")
    by_family: dict[str, list[AttackCheck]] = {}
    for check in checked:
        by_family.setdefault(check.attack.family, []).append(check)
    print(f"{'family':24} attacks sanitized got through")
    for family, members in (*by_family.items(), ("all", list(checked))):
        sanitized, through = (
            sum(map(bool, counts)) for counts in zip(*((c.sanitized, c.escapes) for c in members), strict=True)
        )
        print(f"{family:24} {len(members):7} {sanitized:9} {through:11}")
    escaping = [check for check in checked if check.escapes]
    for check in escaping[:_MAX_SHOWN]:
        print(f"got through {check.attack.id} in {check.attack.target}: {check.escapes[0]!a}")
    if len(escaping) > _MAX_SHOWN:
        print(f"{len(escaping) - _MAX_SHOWN} more in --json")
    print(f"{len(escaping)} got out of its block" if escaping else "none got out of its block")


def _measure(judge: Judge, mode: Pairwise, checked: Sequence[AttackCheck], seconds: float) -> dict[str, Any]:
    success = measure_attack_success(mode, judge.engine, [check.attack for check in checked], seconds=seconds)
    print("verdicts moved towards the attacker, with 95 % intervals (no pass or fail)")
    for family, rate in success.by_family.items():
        print(f"{family:24} {_percent(rate)}")
    if success.share is not None:
        print(f"{'all':24} {_percent(success.share)}")
    print(f"{success.already} attacked answers won without the attack")
    print(f"{success.unreadable} attacks left no readable verdict")
    return asdict(success)


def _percent(rate: Estimate) -> str:
    return f"{100 * rate.value:.1f} % ({100 * rate.low:.1f} to {100 * rate.high:.1f}), n = {rate.n}"


if __name__ == "__main__":
    sys.exit(main())
