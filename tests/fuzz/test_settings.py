"""Files and options that somebody wrote by hand: each is understood, or refused in words that name the place."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import typer
import yaml
from hypothesis import strategies as st

from judgelm.cli.console import load_config
from judgelm.cli.options import parse_pairs
from judgelm.data.builder.options import build_options
from judgelm.data.generators import build_generator, parse_generator
from judgelm.engines.base import EngineOptions
from judgelm.engines.scripted import ScriptedEngine
from judgelm.errors import ConfigError
from judgelm.modes import MODES, make_mode
from judgelm.prompts.judge_card import CARD_NAME, Card, find_card, write_card
from tests.support import fuzzing

ROOT = Path(__file__).parents[2]
CONFIGS = [path.read_bytes() for path in sorted((ROOT / "configs").rglob("*.yaml"))]
VALUES = fuzzing.texts(
    *("a", "b: ", "- ", "\n", "  ", "{", "}", "[", "]", ": ", ",", "&a ", "*a ", "!!int ", "!!python/name:os.system "),
    *("2024-13-45", "0x", "1_0", "1e999", ".nan", "~", "'", '"', "# ", "? ", "%", "\t", "---\n", "<<: *a", "0o9", "="),
    "|",
)
CARD = Card(template="judgelm-v1", template_sha="ab" * 32, window=512, training={"base": "x"})
RUBRIC = yaml.safe_load((ROOT / "configs/judge/rubric.yaml").read_text())["mode_arg"]
PAIR = {"both_orders": True, "order_rule": "probability", "tie_threshold": 0.1, "reasons": "close", "margin": 1}
OPTIONS = [("rubric", RUBRIC), ("pair", PAIR), ("ssr", {"tau": 0.8, "samples": 5, "task": "number"})]
OPTIONS += [("qa", {"rules": "drop", "shots": 2}), ("single", {"chat": True}), *((name, {}) for name in MODES)]
BUILD = {"inputs": ["a.jsonl", {"path": "b.jsonl", "winner_scores": [9, 3, 6]}], "out": "o", "seed": 1, "subsets": [5]}
ANSWERER = {"name": "a", "model": "m", "decodings": [{}, {"temperature": 0.7, "seed": 1}], "engine_args": {"x": 1}}
COMMAND = SimpleNamespace(
    params=[SimpleNamespace(name=name) for name in ("model", "engine_arg", "mode_arg", "mode", "config", "help")]
)


@pytest.fixture
def readers(tmp_path):
    """Name -> what reads a file of that name."""
    script = tmp_path / "script.json"

    def config(path):
        context = SimpleNamespace(command=COMMAND, default_map=None)
        try:
            load_config(context, path)
        except typer.BadParameter as error:
            raise ConfigError(str(error)) from error
        for name in ("engine_arg", "mode_arg"):
            parse_pairs((context.default_map or {}).get(name, []), f"--{name.replace('_', '-')}")

    return {
        CARD_NAME: lambda path: find_card(str(path.parent)),
        "config.yaml": config,
        "script.json": lambda path: ScriptedEngine.load(EngineOptions(model=str(script))),
    }


def test_files(fuzz, readers, tmp_path):
    write_card(tmp_path, CARD)
    card = (tmp_path / CARD_NAME).read_bytes()
    whole = {
        CARD_NAME: fuzzing.mangled(st.just(card))
        | fuzzing.altered(st.just(json.loads(card))).map(lambda one: json.dumps(one).encode()),
        "config.yaml": fuzzing.mangled(st.sampled_from(CONFIGS))
        | VALUES.map(lambda text: text.encode(errors="surrogatepass")),
        "script.json": fuzzing.mangled(st.just(b'{"q|a|b": "8 6\\n", "*": "5 5"}')),
    }

    def check(given):
        name, content = given
        path = tmp_path / name
        path.write_bytes(content)
        fuzzing.refusal(lambda: readers[name](path), path)

    fuzz(st.sampled_from(sorted(whole)).flatmap(lambda name: st.tuples(st.just(name), whole[name])), check)


def test_options(fuzz):
    def check(given):
        (mode, options), answerer, build, text = given
        fuzzing.refusal(lambda: make_mode(mode, options))
        fuzzing.refusal(lambda: build_generator(answerer), "answerer")
        fuzzing.refusal(lambda: build_options(build, "build.yaml"), "build.yaml")
        fuzzing.refusal(lambda: parse_pairs([text, f"a={text}"], "--engine-arg"), "--engine-arg")
        fuzzing.refusal(lambda: parse_generator(f"name=a,model=m,{text}"), "answerer", "--generator")

    modes = st.sampled_from(OPTIONS).flatmap(lambda one: st.tuples(st.just(one[0]), fuzzing.altered(st.just(one[1]))))
    fuzz(st.tuples(modes, fuzzing.altered(st.just(ANSWERER)), fuzzing.altered(st.just(BUILD)), VALUES), check)
