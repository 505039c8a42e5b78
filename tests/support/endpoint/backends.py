"""What answers behind the endpoint: a model, or a distribution that is written down."""

import random
import threading
from dataclasses import dataclass

import regex


@dataclass
class Generated:
    """One reply; `steps` are (token, logprob, {token: logprob}) for every place."""

    text: str
    steps: list
    finish_reason: str
    prompt_tokens: int


class TinyBackend:
    """A model of transformers, run plainly; deterministic for greedy replies."""

    takes_ids = True

    def __init__(self, folder):
        from transformers import AutoModelForCausalLM, AutoTokenizer

        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.model = AutoModelForCausalLM.from_pretrained(folder)
        self._lock = threading.Lock()
        self._texts = [self.tokenizer.decode([token]) for token in range(len(self.tokenizer))]

    def generate(self, prompt, options, number):
        import torch

        ids = self.tokenizer(prompt)["input_ids"] if isinstance(prompt, str) else list(prompt)
        drawn, steps, finish, store, feed = [], [], "length", None, ids
        generator = torch.Generator().manual_seed(options.get("seed", 0) + number)
        text = ""
        with self._lock, torch.inference_mode():
            while len(drawn) < options["max_tokens"]:
                out = self.model(torch.tensor([feed]), past_key_values=store, use_cache=True)
                store = out.past_key_values
                logprobs = torch.log_softmax(out.logits[0, -1].float(), -1)
                token = self._draw(logprobs, options, generator, text)
                top = torch.topk(logprobs, 20)
                listed = {self._texts[one]: value for value, one in zip(*(part.tolist() for part in top), strict=True)}
                steps.append((self._texts[token], float(logprobs[token]), listed))
                drawn.append(token)
                feed = [token]
                text = self.tokenizer.decode(drawn, skip_special_tokens=True)
                if token == self.tokenizer.eos_token_id or any(mark in text for mark in options["stop"]):
                    finish = "stop"
                    break
        return Generated(_before(text, options["stop"]), steps, finish, len(ids))

    def _draw(self, logprobs, options, generator, text):
        import torch

        if options.get("grammar"):
            for token in torch.argsort(logprobs, descending=True).tolist():
                piece = "" if token == self.tokenizer.eos_token_id else self._texts[token]
                if piece and regex.fullmatch(options["grammar"], text + piece, partial=True):
                    return token
            return self.tokenizer.eos_token_id
        if options["temperature"] == 0:
            return int(logprobs.argmax())
        return int(torch.multinomial(torch.softmax(logprobs / options["temperature"], -1), 1, generator=generator))


class ScriptedBackend:
    takes_ids = False

    def __init__(self, script=None, marker="[S]"):
        self.script = {"": {"8": 1.0}, "8": {" 6": 1.0}, "8 6": {"\n": 1.0}} if script is None else script
        self.marker = marker

    def generate(self, prompt, options, number):
        from math import log

        so_far, text, steps, finish = prompt.rpartition(self.marker)[2], "", [], "length"
        rng = random.Random(options.get("seed", 0) + number)
        while len(steps) < options["max_tokens"]:
            tops = self.script.get(so_far + text, {"</s>": 1.0})
            greedy = options["temperature"] == 0
            token = max(tops, key=tops.get) if greedy else rng.choices(list(tops), list(tops.values()))[0]
            steps.append((token, log(tops[token]), {piece: log(share) for piece, share in tops.items()}))
            if token == "</s>":
                finish = "stop"
                break
            text += token
            if any(mark in text for mark in options["stop"]):
                finish = "stop"
                break
        return Generated(_before(text, options["stop"]), steps, finish, len(prompt.split()))


def _before(text, stop):
    places = [text.index(mark) for mark in stop if mark in text]
    return text[: min(places)] if places else text
