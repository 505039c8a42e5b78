"""A real HTTP endpoint on this machine that speaks OpenAI's API, and can misbehave in every way that servers do.

    with endpoint(TinyBackend(tiny_model)) as server:
        load_engine("openai", EngineOptions(model="tiny", engine_args={"base_url": server.base_url}))

`TinyBackend` runs a model, `ScriptedBackend` a written-down distribution. What the server has and takes are attributes
of `Server`; `server.fault` names what goes wrong with the request of a given number (see `first`). `server.kill()`
drops every connection and closes the port, `server.start()` opens the same port again.
"""

import json
import random
import socket
import ssl
import threading
import time
from collections import Counter
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

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

    def generate(self, prompt, asked, number):
        import torch

        ids = self.tokenizer(prompt)["input_ids"] if isinstance(prompt, str) else list(prompt)
        drawn, steps, finish, store, feed = [], [], "length", None, ids
        generator = torch.Generator().manual_seed(asked.get("seed", 0) + number)
        text = ""
        with self._lock, torch.inference_mode():
            while len(drawn) < asked["max_tokens"]:
                out = self.model(torch.tensor([feed]), past_key_values=store, use_cache=True)
                store = out.past_key_values
                logprobs = torch.log_softmax(out.logits[0, -1].float(), -1)
                token = self._draw(logprobs, asked, generator, text)
                top = torch.topk(logprobs, 20)
                listed = {self._texts[one]: value for value, one in zip(*(part.tolist() for part in top), strict=True)}
                steps.append((self._texts[token], float(logprobs[token]), listed))
                drawn.append(token)
                feed = [token]
                text = self.tokenizer.decode(drawn, skip_special_tokens=True)
                if token == self.tokenizer.eos_token_id or any(mark in text for mark in asked["stop"]):
                    finish = "stop"
                    break
        return Generated(_before(text, asked["stop"]), steps, finish, len(ids))

    def _draw(self, logprobs, asked, generator, text):
        import torch

        if asked.get("grammar"):
            for token in torch.argsort(logprobs, descending=True).tolist():
                piece = "" if token == self.tokenizer.eos_token_id else self._texts[token]
                if piece and regex.fullmatch(asked["grammar"], text + piece, partial=True):
                    return token
            return self.tokenizer.eos_token_id
        if asked["temperature"] == 0:
            return int(logprobs.argmax())
        return int(torch.multinomial(torch.softmax(logprobs / asked["temperature"], -1), 1, generator=generator))


class ScriptedBackend:
    """Tokens by their probabilities, written down.

    Args:
        script: from the reply so far to `{token: probability}`; `"</s>"` ends the reply. A reply so far that is
            missing ends as well.
        marker: the prompt's last text; what stands behind it is the reply so far.
    """

    takes_ids = False

    def __init__(self, script=None, marker="[S]"):
        self.script = {"": {"8": 1.0}, "8": {" 6": 1.0}, "8 6": {"\n": 1.0}} if script is None else script
        self.marker = marker

    def generate(self, prompt, asked, number):
        from math import log

        so_far, text, steps, finish = prompt.rpartition(self.marker)[2], "", [], "length"
        rng = random.Random(asked.get("seed", 0) + number)
        while len(steps) < asked["max_tokens"]:
            tops = self.script.get(so_far + text, {"</s>": 1.0})
            greedy = asked["temperature"] == 0
            token = max(tops, key=tops.get) if greedy else rng.choices(list(tops), list(tops.values()))[0]
            steps.append((token, log(tops[token]), {piece: log(share) for piece, share in tops.items()}))
            if token == "</s>":
                finish = "stop"
                break
            text += token
            if any(mark in text for mark in asked["stop"]):
                finish = "stop"
                break
        return Generated(_before(text, asked["stop"]), steps, finish, len(prompt.split()))


def _before(text, stop):
    places = [text.index(mark) for mark in stop if mark in text]
    return text[: min(places)] if places else text


def first(count, fault):
    """The fault for the first so many requests after now."""
    return lambda number, body: fault if number <= count else None


@dataclass
class Server:
    """What the endpoint has, takes and does wrong; all may be changed while it runs.

    Attributes:
        fault: from a request's number (1, 2, ..., since it was set through `misbehave`) and body to None or one of
            429, 429-quota, 500, 503-later, 401, 404, 400, stall, slow, cut, drop, html, torn, types, no_choices,
            empty_choices, null_text, error_200, bad_logprobs, nan_logprobs, filter, refusal; or a status and a body,
            sent as they are, or a function that changes the reply's data.
        refuses: fields that are answered with a 400 which names them.
        most_at_once: more requests than so many at once get a 429.
        places: so many are answered at once, and others wait; one whose client has gone is dropped.
        certificate: path of a PEM file with key and certificate, for https.
        ignores_continuation: a last assistant message is taken for one that has ended.
        counts: POST requests by path, and `answered`, `limited`, `at_once` (the most that ever were), `proxied`.
        bodies: what was asked, in order.
    """

    backend: object
    models: tuple = ("tiny",)
    has_models: bool = True
    has_completions: bool = True
    supports_grammar: bool = False
    logprobs: bool = True
    most_logprobs: int = 20
    chat_form: bool = False
    ignores_n: bool = False
    ignores_stop: bool = False
    refuses: tuple = ()
    window: int | None = None
    key: str | None = None
    retry_after: str | None = None
    most_at_once: int | None = None
    places: int | None = None
    certificate: str | None = None
    ignores_continuation: bool = False
    states_usage: bool = True
    delay_s: float = 0.0
    stall_s: float = 30.0
    fault: object = None
    counts: Counter = field(default_factory=Counter)
    bodies: list = field(default_factory=list)
    keys: set = field(default_factory=set)
    port: int = 0

    def __post_init__(self):
        self.lock = threading.Lock()
        self.at_once = 0
        self.free = threading.Semaphore(self.places or 10_000)
        self._number = 0
        self._http = None

    @property
    def base_url(self):
        return f"http{'s' if self.certificate else ''}://127.0.0.1:{self.port}/v1"

    def misbehave(self, fault):
        """From now on, with numbers that begin at 1."""
        with self.lock:
            self._number, self.fault = 0, fault

    def start(self):
        self._http = _Http(("127.0.0.1", self.port), _Handler)
        self._http.control = self
        if self.certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(self.certificate)
            self._http.socket = context.wrap_socket(self._http.socket, server_side=True)
        self.port = self._http.server_address[1]
        threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def kill(self):
        """As a killed process: the port is closed and so is every connection."""
        http, self._http = self._http, None
        if http is not None:
            http.shutdown()
            http.server_close()
            http.drop_all()

    def next_fault(self, body):
        with self.lock:
            self._number += 1
            return self.fault(self._number, body) if self.fault else None


@contextmanager
def endpoint(backend=None, **switches):
    """A `Server` that runs until the block ends; `switches` are its attributes."""
    server = Server(backend or ScriptedBackend(), **switches)
    server.start()
    try:
        yield server
    finally:
        server.kill()


class _Http(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 256

    def __init__(self, *args):
        self._open = set()
        super().__init__(*args)

    def process_request(self, request, client_address):
        self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request):
        self._open.discard(request)
        super().shutdown_request(request)

    def drop_all(self):
        for request in list(self._open):
            with suppress(OSError):
                request.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request, client_address):
        pass  # a client that went away, or a connection that was dropped on purpose


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_):
        pass

    @property
    def control(self):
        return self.server.control

    def parse_request(self):
        parsed = super().parse_request()
        if parsed and self.path.startswith("http://"):  # as a proxy is asked
            self.control.counts["proxied"] += 1
            self.path = urlsplit(self.path).path
        return parsed

    def do_GET(self):
        if self._denied():
            return
        if not self.control.has_models or self.path != "/v1/models":
            self._send(404, {"detail": "Not Found"})
            return
        cards = [{"id": name, "object": "model", "owned_by": "test"} for name in self.control.models]
        if self.control.window:
            cards = [card | {"max_model_len": self.control.window} for card in cards]
        self._send(200, {"object": "list", "data": cards})

    def do_POST(self):
        control = self.control
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with control.lock:
            control.at_once += 1
            at_once = control.at_once
            control.bodies.append(body)
            control.counts[self.path] += 1
            control.counts["at_once"] = max(at_once, control.counts["at_once"])
        try:
            if not self._denied() and not self._limited(at_once):
                with control.free:
                    if not self._abandoned():
                        time.sleep(control.delay_s)
                        self._answer(body, control.next_fault(body))
        finally:
            with control.lock:
                control.at_once -= 1

    def _abandoned(self):
        if self.control.places is None:
            return False
        with suppress(BlockingIOError):
            return not self.connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        return False

    def _denied(self):
        given = self.headers.get("Authorization", "").removeprefix("Bearer ")
        self.control.keys.add(given)
        if self.control.key in (None, given):
            return False
        self._send(401, _error(f"Incorrect API key provided: {given}", code="invalid_api_key"))
        return True

    def _limited(self, at_once):
        if self.control.most_at_once is None or at_once <= self.control.most_at_once:
            return False
        self._limit()
        return True

    def _limit(self, status=429, **error):
        self.control.counts["limited"] += 1
        headers = {"Retry-After": self.control.retry_after} if self.control.retry_after else {}
        self._send(status, _error("Rate limit reached", **error), headers)

    def _answer(self, body, fault):
        if fault in ("429", "503-later"):
            self._limit(int(fault[:3]))
        elif fault == "429-quota":
            self._limit(code="insufficient_quota")
        elif fault in ("500", "404", "400", "401"):
            self._send(int(fault), _error(f"HTTP {fault} on purpose"))
        elif fault == "stall":
            time.sleep(self.control.stall_s)
        elif fault == "drop":
            self.connection.shutdown(socket.SHUT_RDWR)
            self.close_connection = True
        elif isinstance(fault, tuple):
            status, data = fault
            self._send(status, data)
        elif fault == "html":
            self._send(200, "<html>502 Bad Gateway</html>", {"Content-Type": "text/html"})
        else:
            self._reply(body, fault)

    def _reply(self, body, fault):
        control = self.control
        chat = self.path == "/v1/chat/completions"
        if not chat and not (control.has_completions and self.path == "/v1/completions"):
            self._send(404, {"detail": "Not Found"})
            return
        if body["model"] not in control.models:
            self._send(404, _error(f"The model {body['model']!r} does not exist", code="model_not_found"))
            return
        refused = next((name for name in control.refuses if name in body), None)
        if refused is not None:
            instead = " Use 'max_completion_tokens' instead." if refused == "max_tokens" else ""
            self._send(400, _error(f"Unsupported parameter: '{refused}' is not supported.{instead}", param=refused))
            return
        top = body.get("top_logprobs", 0) if chat else body.get("logprobs", 0)
        if top > control.most_logprobs:
            self._send(400, _error(f"Requested sample logprobs of {top}, most allowed: {control.most_logprobs}"))
            return
        if isinstance(body.get("prompt"), list) and not control.backend.takes_ids:
            self._send(400, _error("prompt must be a string"))
            return
        self._generate(body, fault, chat, top)

    def _generate(self, body, fault, chat, top):
        control = self.control
        prompt = _chat_text(body, ignores=control.ignores_continuation) if chat else body["prompt"]
        asked = {
            "max_tokens": body.get("max_tokens", body.get("max_completion_tokens")),
            "temperature": body.get("temperature", 1.0),
            "stop": [] if control.ignores_stop else body.get("stop", []),
            "seed": body.get("seed", 0),
            "grammar": body.get("structured_outputs", {}).get("regex") if control.supports_grammar else None,
        }
        if control.window is not None:
            length = len(prompt) if isinstance(prompt, list) else len(control.backend.tokenizer(prompt)["input_ids"])
            if length + asked["max_tokens"] > control.window:
                text = f"This model's maximum context length is {control.window} tokens. However, you requested more"
                self._send(400, _error(text + " (max_tokens included)."))
                return
        count = 1 if control.ignores_n else body.get("n", 1)
        replies = [control.backend.generate(prompt, asked, number) for number in range(count)]
        choices = [self._choice(one, chat, top, place) for place, one in enumerate(replies)]
        data = {
            "object": "chat.completion" if chat else "text_completion",
            "choices": _spoilt(choices, fault),
            "usage": {
                "prompt_tokens": replies[0].prompt_tokens,
                "completion_tokens": sum(len(one.steps) for one in replies),
            },
        }
        if not control.states_usage:
            del data["usage"]
        if callable(fault):
            fault(data)
        if fault == "no_choices":
            del data["choices"]
        if fault == "error_200":
            data = _error("the model is being loaded")
        control.counts["answered"] += fault is None
        text = json.dumps(data)
        if fault == "torn":
            text = text[: len(text) // 2]
        self._send(200, text, {"Content-Type": "application/json"}, cut=fault == "cut")

    def _choice(self, reply, chat, top, place):
        logprobs = None
        if top and self.control.logprobs:
            ranked = [
                (token, value, sorted(tops.items(), key=lambda one: -one[1])[:top])
                for token, value, tops in reply.steps
            ]
            if chat or self.control.chat_form:
                content = [
                    {"token": t, "logprob": v, "top_logprobs": [{"token": a, "logprob": b} for a, b in tops]}
                    for t, v, tops in ranked
                ]
                logprobs = {"content": content}
            else:
                logprobs = {
                    "tokens": [token for token, _, _ in ranked],
                    "token_logprobs": [value for _, value, _ in ranked],
                    "top_logprobs": [dict(tops) for _, _, tops in ranked],
                }
        said = {"message": {"role": "assistant", "content": reply.text}} if chat else {"text": reply.text}
        return {"index": place, "finish_reason": reply.finish_reason, "logprobs": logprobs, **said}

    def _send(self, status, data, headers=None, cut=False):
        raw = (data if isinstance(data, str) else json.dumps(data)).encode()
        self.send_response(status)
        for name, value in ({"Content-Type": "application/json"} | (headers or {})).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw[: len(raw) // 2] if cut else raw)
        if cut:
            self.connection.shutdown(socket.SHUT_RDWR)
            self.close_connection = True


def _error(message, **more):
    return {"error": {"message": message, "type": "invalid_request_error", "param": None, "code": None} | more}


def _chat_text(body, *, ignores):
    """The messages in a row; a last assistant message is gone on from only where that is asked for."""
    messages = body["messages"]
    if messages[-1]["role"] == "assistant" and (ignores or not body.get("continue_final_message")):
        messages = messages[:-1]
    return "".join(_content_text(message["content"]) for message in messages)


def _content_text(content):
    """A message's text; of one with images the texts among its parts."""
    if isinstance(content, str):
        return content
    return "".join(part["text"] for part in content if part["type"] == "text")


def _spoilt(choices, fault):
    one = choices[0]
    said = one.get("message", one)
    if fault == "types":
        said["content" if "message" in one else "text"] = 86
    elif fault == "null_text":
        said["content" if "message" in one else "text"] = None
        one["finish_reason"] = "stop"
    elif fault == "empty_choices":
        return []
    elif fault == "bad_logprobs":
        one["logprobs"] = {"tokens": ["8"], "token_logprobs": [], "top_logprobs": []}
    elif fault == "nan_logprobs":
        one["logprobs"] = {"content": [{"token": "8", "logprob": float("nan"), "top_logprobs": []}]}
    elif fault == "filter":
        one["finish_reason"] = "content_filter"
    elif fault == "refusal":
        one["message"] |= {"content": None, "refusal": "I will not judge."}
        one["finish_reason"] = "stop"
    return choices
