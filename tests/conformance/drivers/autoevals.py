"""autoevals: its classifiers of single answers and of pairs, with and without reasons."""

import json
import sys
from pathlib import Path

import openai
from autoevals import Battle, ClosedQA, Factuality, Humor, Possible, Security, Sql, Summary, Translation

asked = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
COMMON = {"model": "known", "client": openai.OpenAI(base_url=asked["base_url"], api_key="none", max_retries=0)}
SINGLES = {
    "Factuality": Factuality(**COMMON),
    "ClosedQA": ClosedQA(**COMMON),
    "ClosedQA without reasons": ClosedQA(use_cot=False, **COMMON),
    "Sql": Sql(**COMMON),
    "Translation": Translation(**COMMON),
    "Possible": Possible(**COMMON),
    "Humor": Humor(**COMMON),
    "Security": Security(**COMMON),
}
PAIRS = {"Battle": Battle(**COMMON), "Summary": Summary(**COMMON)}


def score(scorer, **texts):
    """The score, or None if the client cannot read the reply."""
    try:
        return scorer(**texts).score
    except Exception as error:
        sys.stderr.write(f"{scorer.name}: {error!r}\n")
        return None


def texts(one):
    own = {"criteria": "Is it right?", "language": "German"}
    return {"input": one["question"], "output": one["answer"], "expected": one["reference"], **own}


found = {name: [score(SINGLES[name], **texts(one)) for one in asked["singles"]] for name in asked.get("kinds", SINGLES)}
for name, scorer in PAIRS.items() if "kinds" not in asked else ():
    asks = "instructions" if name == "Battle" else "input"
    found[name] = [
        score(scorer, output=one["first"], expected=one["second"], **{asks: one["question"]}) for one in asked["pairs"]
    ]
Path(sys.argv[2]).write_text(json.dumps(found), encoding="utf-8")
