"""Asking an engine and waiting for all it answers."""

from judgelm.prompts.catalog import get_template
from judgelm.records import Sample


def prompt_of(answer, question="what is it"):
    sample = Sample(id="1", question=question, answers=(answer, "a red fox"))
    return get_template("judgelm-compact").render(sample, (0, 1), None)


def run(engine, requests):
    """All completions by key; a request that never comes back fails the test instead of hanging."""
    engine.submit(requests)
    done = {}
    for _ in range(10_000):
        for completion in engine.collect(0.1):
            assert completion.key not in done
            done[completion.key] = completion
        if len(done) == len(requests):
            return done
    raise AssertionError(f"{len(requests) - len(done)} requests never came back")
