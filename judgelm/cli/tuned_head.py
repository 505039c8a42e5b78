"""The head of a judge from `judgelm tune`: its states, its fit, and its file."""

import hashlib
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from judgelm.cli.console import console
from judgelm.cli.tuning_job import RUNS, TuningJob
from judgelm.errors import InputError
from judgelm.prompts.judge_card import HeadCard

if TYPE_CHECKING:
    from judgelm.data.labelled_set import LabelledSet
    from judgelm.engines.recorded_states import RecordedStates
    from judgelm.judge import Judge
    from judgelm.studies.heads import HeadCandidate

HEAD, HEAD_FILE = "head", "head.safetensors"
HEAD_LAYERS = (0.64, 0.71, 0.79)
"""Layers whose states are used, as shares of the number of layers."""


def recorders_of(job: TuningJob, judge: "Judge") -> "dict[str, RecordedStates]":
    """Return a recorder for each prompt that shows one answer; empty if the engine has no states."""
    from judgelm.engines.recorded_states import RecordedStates

    described = judge.engine.describe()
    if not (count := getattr(judge.engine, "state_layers", 0)):
        console.message(f"no head: the {described['engine']} engine returns no states; use --engine transformers")
    elif described["quantization"] is not None:
        count = 0
        console.message("no head: the states of a quantised model are too coarse; remove --quantization")
    layers = tuple(sorted({max(1, round(share * count)) for share in HEAD_LAYERS}))
    model = json.dumps(described, sort_keys=True, default=str)
    return {
        name: RecordedStates(judge.engine, layers, job.folder / RUNS / f"{name}.states.npz", model)
        for name, each in job.candidates.items()
        if count and each.reads_alone and (each.verdict is None or each.verdict.reason_tokens is None)
    }


def head_candidate(
    job: TuningJob,
    recorders: "Mapping[str, RecordedStates]",
    candidates: Mapping[str, Any],
    known: Any,
    labelled: "LabelledSet",
) -> Any:
    """Return the head as a candidate, with the states of all prompts."""
    import numpy as np

    from judgelm.modes.readings import prompts_alone
    from judgelm.studies.heads import HeadCandidate, PromptStates

    states, seconds = {}, 0.0
    for name, recorder in recorders.items():
        prompts = [
            prompt
            for sample in labelled.samples.values()
            for mode in job.questions(name, sample)
            for prompt in prompts_alone(mode, sample)
        ]
        recorded = recorder.states(prompts).astype("float64")
        if not np.isfinite(recorded).any():
            raise InputError(f"{name}: the model's states are not finite; use --dtype float32, or --quick for no head")
        if job.kind == "pair":
            recorded = recorded[0::2] - recorded[1::2]
        log_odds = candidates[name].differences
        if job.candidates[name].reading != "yes-no":  # they are grades
            log_odds = log_odds * 0
        by_layer = {layer: recorded[:, place] for place, layer in enumerate(recorder.layers)}
        states[name] = PromptStates(states=by_layer, log_odds=log_odds, centered=job.kind != "pair")
        seconds = max(seconds, candidates[name].seconds or 0.0)
    return HeadCandidate(
        prompts=states,
        targets=known.targets,
        questions=known.questions,
        kind=known.kind,
        groups=known.criteria,
        seconds=seconds or None,
    )


def write_head_of(job: TuningJob, candidate: "HeadCandidate", described: Mapping[str, Any]) -> tuple[HeadCard, str]:
    """Fit the head to all labels, write it, and return its card and the name of its prompt."""
    import numpy as np

    from judgelm.engines.heads import write_head

    everything = np.ones(len(candidate.targets), dtype=np.bool_)
    setting, _ = candidate.choose(everything)
    found = candidate.weights(setting, everything)
    path = job.folder / HEAD_FILE
    write_head(path, np.stack([weights for weights, _ in found.values()]))
    terms = {name: each for name, (_, each) in found.items()}
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    dtype, first = described["dtype"], next(iter(terms.values()))
    criteria = terms if job.kind == "checklist" else {}
    card = HeadCard(layer=setting.layer, dtype=dtype, terms=first, criteria=criteria, file=HEAD_FILE, sha256=sha256)
    return card, setting.prompt
