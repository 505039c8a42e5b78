"""Phoenix: its built-in evaluators, and a classifier with a prompt and labels of its own."""

import json
import sys
from pathlib import Path

from phoenix.evals import LLM, create_classifier
from phoenix.evals.metrics import (
    ConcisenessEvaluator,
    CorrectnessEvaluator,
    DocumentRelevanceEvaluator,
    FaithfulnessEvaluator,
    HallucinationEvaluator,
    RefusalEvaluator,
    ToxicityEvaluator,
)

asked = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
llm = LLM(provider="openai", model="known", base_url=asked["base_url"], api_key="none")
OWN = "Question: {{input}}\nAnswer: {{output}}\n\nIs the answer polite or rude?"
EVALUATORS = {
    "correctness": CorrectnessEvaluator(llm=llm),
    "conciseness": ConcisenessEvaluator(llm=llm),
    "document relevance": DocumentRelevanceEvaluator(llm=llm),
    "faithfulness": FaithfulnessEvaluator(llm=llm),
    "hallucination": HallucinationEvaluator(llm=llm),
    "refusal": RefusalEvaluator(llm=llm),
    "toxicity": ToxicityEvaluator(llm=llm),
    "own": create_classifier("own", OWN, llm, {"polite": 1.0, "rude": 0.0}),
}


def label(evaluator, one):
    """The label, or None if the client cannot read the reply."""
    texts = {"input": one["question"], "output": one["answer"], "context": one["reference"]}
    try:
        [score] = evaluator.evaluate(texts | {"document_text": one["answer"], "text": one["answer"]})
        return score.label
    except Exception as error:
        sys.stderr.write(f"{evaluator.name}: {error!r}\n")
        return None


found = {name: [label(EVALUATORS[name], one) for one in asked["singles"]] for name in asked.get("kinds", EVALUATORS)}
Path(sys.argv[2]).write_text(json.dumps(found), encoding="utf-8")
