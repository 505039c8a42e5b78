"""Teachers and answerers behind a real HTTP server, and a ledger of what each prompt was served."""

import re
from collections import Counter

from tests.support.endpoint.backends import Generated

_ANSWERS = re.compile(r"Start of Assistant \d's Answer\]\n(.*?)\n\[The End", re.DOTALL)


class TeacherBackend:
    """Scores an answer by its number of words, at most 10, and says why; `says` may put another reply in its place."""

    takes_ids = False

    def __init__(self, says=lambda first, second: None):
        self.says = says

    def generate(self, prompt, asked, number):
        first, second = _ANSWERS.findall(prompt) or ("", "")
        scores = " ".join(str(min(10, len(answer.split()))) for answer in (first, second))
        text = self.says(first, second) or f"{scores}\nAssistant 1 says {first}, Assistant 2 says {second}."
        return _generated(text, prompt, asked)


class AnswererBackend:
    """Answers with its name, the question's last word that many times, and its temperature and seed if it is warm."""

    takes_ids = False

    def __init__(self, name):
        self.name = name

    def generate(self, prompt, asked, number):
        question = prompt.removeprefix("Question: ").removesuffix("\nAnswer:")
        count = len(question) % 3 + len(self.name) % 4
        warm = f" at {asked['temperature']} with {asked['seed']}" if asked["temperature"] else ""
        return _generated(f"{self.name} says{f' {question.split()[-1]}' * count}{warm}", prompt, asked)


def _generated(text, prompt, asked):
    words = re.findall(r"\s*\S+", text)
    cut = len(words) > asked["max_tokens"]
    kept = words[: asked["max_tokens"]]
    steps = [(word, 0.0, {}) for word in kept]
    return Generated("".join(kept), steps, "length" if cut else "stop", len(prompt.split()))


class Ledger:
    """A server's fault that says which prompt was served how often; `plan` are the faults of a prompt's first tries."""

    def __init__(self, plan=(None,), marker="Assistant"):
        self.plan = plan
        self.marker = marker
        self.asked = Counter()
        self.served = Counter()

    def __call__(self, number, body):
        prompt = body.get("prompt") or body["messages"][-1]["content"]
        if self.marker not in prompt:
            return None
        fault = self.plan[len(self.asked) % len(self.plan)] if prompt not in self.asked else None
        self.asked[prompt] += 1
        self.served[prompt] += fault is None
        return fault
