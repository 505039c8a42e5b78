"""LangChain's evaluators: pairs, grades, criteria and right answers, with and without reference."""

import json
import sys
from pathlib import Path

from langchain_classic.evaluation import load_evaluator
from langchain_openai import ChatOpenAI

asked = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
llm = ChatOpenAI(model="gpt-4", temperature=0)
found = {}
for kind in ("pairwise_string", "labeled_pairwise_string"):
    evaluator = load_evaluator(kind, llm=llm)
    found[kind] = [
        evaluator.evaluate_string_pairs(
            input=one["question"],
            prediction=one["first"],
            prediction_b=one["second"],
            **({"reference": "none"} if kind.startswith("labeled") else {}),
        )["value"]
        for one in asked["pairs"]
    ]
for kind, options in (
    ("score_string", {}),
    ("score_string", {"criteria": {"depth": "Is it deep?"}}),
    ("labeled_score_string", {}),
    ("criteria", {"criteria": "helpfulness"}),
    ("labeled_criteria", {"criteria": "correctness"}),
    ("qa", {}),
    ("context_qa", {}),
    ("cot_qa", {}),
):
    evaluator = load_evaluator(kind, llm=llm, **options)
    referenced = {"reference": True} if evaluator.requires_reference else {}
    found[kind + ("-own" if isinstance(options.get("criteria"), dict) else "")] = [
        evaluator.evaluate_strings(
            input=one["question"], prediction=one["answer"], **{name: one[name] for name in referenced}
        )["score"]
        for one in asked["singles"]
    ]
Path(sys.argv[2]).write_text(json.dumps(found), encoding="utf-8")
