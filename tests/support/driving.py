"""Asking an engine and waiting for all it answers."""

from judgelm.prompts.catalog import get_template
from judgelm.prompts.conversation import reward_prompt
from judgelm.records import Request, Sample, Sampling


def prompt_of(answer, question="what is it"):
    sample = Sample(id="1", question=question, answers=(answer, "a red fox"))
    return get_template("judgelm-compact").render(sample, (0, 1), None)


def reward_requests(*answers, question="what is the capital of france"):
    sample = Sample(id="1", question=question, answers=answers)
    return [
        Request(key=str(index), prompt=reward_prompt(sample, index), sampling=Sampling(max_tokens=1), reward=True)
        for index in range(len(answers))
    ]


def run(engine, requests):
    """All completions by key."""
    engine.submit(requests)
    done = {}
    for _ in range(10_000):
        for completion in engine.collect(0.1):
            assert completion.key not in done
            done[completion.key] = completion
        if len(done) == len(requests):
            return done
    raise AssertionError(f"{len(requests) - len(done)} requests never came back")
