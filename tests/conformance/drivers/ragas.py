"""ragas: an aspect critic, a score by simple criteria, a score by a rubric, and a discrete metric of the user's own.

With `kinds` in the request: those metrics of `ragas.metrics.collections`. Three of them return NaN for every error.
Kinds that start with "old" are metrics of `ragas.metrics`.
"""

import asyncio
import json
import math
import sys
from pathlib import Path

import openai
from langchain_openai import ChatOpenAI
from ragas import metrics as old
from ragas.dataset_schema import SingleTurnSample
from ragas.llms import LangchainLLMWrapper, llm_factory
from ragas.metrics import AspectCritic, DiscreteMetric, RubricsScore, SimpleCriteriaScore
from ragas.metrics.collections import (
    AnswerAccuracy,
    ContextPrecisionWithReference,
    ContextRecall,
    ContextRelevance,
    DomainSpecificRubrics,
    FactualCorrectness,
    Faithfulness,
    NoiseSensitivity,
    ResponseGroundedness,
    SQLSemanticEquivalence,
)

asked = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
llm = LangchainLLMWrapper(ChatOpenAI(model="known", base_url=asked["base_url"], api_key="none"))
METRICS = {
    "aspect": AspectCritic(name="correct", definition="Is the response factually correct?", llm=llm),
    "simple": SimpleCriteriaScore(name="similar", definition="Score 0 to 5 by similarity to the reference", llm=llm),
    "rubrics": RubricsScore(rubrics={f"score{level}_description": f"level {level}" for level in range(1, 6)}, llm=llm),
}


async def score(metric):
    samples = [
        SingleTurnSample(user_input=one["question"], response=one["answer"], reference=one["reference"])
        for one in asked["singles"]
    ]
    return [await metric.single_turn_ascore(sample) for sample in samples]


COLLECTIONS = {
    "answer accuracy": (AnswerAccuracy, ("user_input", "response", "reference")),
    "context precision": (ContextPrecisionWithReference, ("user_input", "reference", "retrieved_contexts")),
    "context recall": (ContextRecall, ("user_input", "retrieved_contexts", "reference")),
    "context relevance": (ContextRelevance, ("user_input", "retrieved_contexts")),
    "factual correctness": (FactualCorrectness, ("response", "reference")),
    "faithfulness": (Faithfulness, ("user_input", "response", "retrieved_contexts")),
    "noise sensitivity": (NoiseSensitivity, ("user_input", "response", "reference", "retrieved_contexts")),
    "groundedness": (ResponseGroundedness, ("response", "retrieved_contexts")),
    "rubrics": (DomainSpecificRubrics, ("user_input", "response", "reference")),
    "sql": (SQLSemanticEquivalence, ("response", "reference")),
}
OLD = {
    "old faithfulness": old.Faithfulness,
    "old groundedness": old.ResponseGroundedness,
    "old context precision": old.LLMContextPrecisionWithReference,
    "old context recall": old.LLMContextRecall,
}
address = {"base_url": asked["base_url"], "api_key": "none", "max_retries": 0}


async def of_old(name):
    """The scores of a metric of `ragas.metrics`, with None where the client cannot read a reply."""
    metric, scores = OLD[name](llm=llm), []
    for one in asked["singles"]:
        texts = {"user_input": one["question"], "response": one["answer"], "reference": one["reference"]}
        try:
            value = await metric.single_turn_ascore(SingleTurnSample(**texts, retrieved_contexts=[one["reference"]]))
        except Exception as error:
            sys.stderr.write(f"{name}: {error!r:.300}\n")
            value = math.nan
        scores.append(None if math.isnan(value) else float(value))
    return scores


async def collected(name):
    """The scores, with None where the client cannot read a reply."""
    if name in OLD:
        return await of_old(name)
    kind, fields = COLLECTIONS[name]
    scores = []
    async with openai.AsyncOpenAI(**address) as connection:
        metric = kind(llm=llm_factory("gpt-4o", client=connection))
        for one in asked["singles"]:
            texts = {"user_input": one["question"], "response": one["answer"], "reference": one["reference"]}
            texts["retrieved_contexts"] = [one["reference"]]
            try:
                value = (await metric.ascore(**{field: texts[field] for field in fields})).value
            except Exception as error:
                sys.stderr.write(f"{name}: {error!r:.300}\n")
                value = math.nan
            scores.append(None if math.isnan(value) else value)
    return scores


def own_metric():
    prompt = (
        "Question: {question}\nResponse: {answer}\nReference: {reference}\n\nIs it right? Answer with pass or fail."
    )
    discrete = DiscreteMetric(name="right", prompt=prompt, allowed_values=["pass", "fail"])
    own = llm_factory("gpt-4o", client=openai.OpenAI(**address))
    return [discrete.score(llm=own, **one).value for one in asked["singles"]]


if "kinds" in asked:
    found = {name: asyncio.run(collected(name)) for name in asked["kinds"]}
else:
    found = {name: asyncio.run(score(metric)) for name, metric in METRICS.items()} | {"discrete": own_metric()}
Path(sys.argv[2]).write_text(json.dumps(found), encoding="utf-8")
