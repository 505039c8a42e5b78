"""One connection of the endpoint: who is refused, which fault strikes, and what goes out."""

import json
import socket
import time
from http.server import BaseHTTPRequestHandler

from tests.support.endpoint.wire import chat_text, choice, error_body, logprobs_of, spoil


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_):
        pass

    @property
    def control(self):
        return self.server.control

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
                time.sleep(control.delay_s)
                self._answer(body, control.next_fault(body))
        finally:
            with control.lock:
                control.at_once -= 1

    def _denied(self):
        given = self.headers.get("Authorization", "").removeprefix("Bearer ")
        self.control.keys.add(given)
        if self.control.key in (None, given):
            return False
        self._send(401, error_body(f"Incorrect API key provided: {given}", code="invalid_api_key"))
        return True

    def _limited(self, at_once):
        if self.control.most_at_once is None or at_once <= self.control.most_at_once:
            return False
        self._limit()
        return True

    def _limit(self, status=429, **details):
        self.control.counts["limited"] += 1
        headers = {"Retry-After": self.control.retry_after} if self.control.retry_after else {}
        self._send(status, error_body("Rate limit reached", **details), headers)

    def _answer(self, body, fault):
        if fault in ("429", "503-later"):
            self._limit(int(fault[:3]))
        elif fault == "429-quota":
            self._limit(code="insufficient_quota")
        elif fault in ("500", "404", "400", "401"):
            self._send(int(fault), error_body(f"HTTP {fault} on purpose"))
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
            self._send(404, error_body(f"The model {body['model']!r} does not exist", code="model_not_found"))
            return
        refused = next((name for name in control.refuses if name in body), None)
        if refused is not None:
            instead = " Use 'max_completion_tokens' instead." if refused == "max_tokens" else ""
            self._send(400, error_body(f"Unsupported parameter: '{refused}' is not supported.{instead}", param=refused))
            return
        top = body.get("top_logprobs", 0) if chat else body.get("logprobs", 0)
        if top > control.most_logprobs:
            self._send(400, error_body(f"Requested sample logprobs of {top}, most allowed: {control.most_logprobs}"))
            return
        if isinstance(body.get("prompt"), list) and not control.backend.takes_ids:
            self._send(400, error_body("prompt must be a string"))
            return
        self._generate(body, fault, chat, top)

    def _generate(self, body, fault, chat, top):
        control = self.control
        prompt = chat_text(body) if chat else body["prompt"]
        options = {
            "max_tokens": body.get("max_tokens", body.get("max_completion_tokens")),
            "temperature": body.get("temperature", 1.0),
            "stop": [] if control.ignores_stop else body.get("stop", []),
            "seed": body.get("seed", 0),
            "grammar": body.get("structured_outputs", {}).get("regex") if control.supports_grammar else None,
        }
        if control.window is not None:
            length = len(prompt) if isinstance(prompt, list) else len(control.backend.tokenizer(prompt)["input_ids"])
            if length + options["max_tokens"] > control.window:
                text = f"This model's maximum context length is {control.window} tokens. However, you requested more"
                self._send(400, error_body(text + " (max_tokens included)."))
                return
        count = 1 if control.ignores_n else body.get("n", 1)
        replies = [control.backend.generate(prompt, options, number) for number in range(count)]
        choices = [self._choice(reply, index, chat, top) for index, reply in enumerate(replies)]
        data = {"object": "chat.completion" if chat else "text_completion", "choices": spoil(choices, fault)}
        if control.states_usage:
            written = sum(len(reply.steps) for reply in replies)
            data["usage"] = {"prompt_tokens": replies[0].prompt_tokens, "completion_tokens": written}
        if callable(fault):
            fault(data)
        if fault == "no_choices":
            del data["choices"]
        if fault == "error_200":
            data = error_body("the model is being loaded")
        control.counts["answered"] += fault is None
        text = json.dumps(data)
        if fault == "torn":
            text = text[: len(text) // 2]
        self._send(200, text, {"Content-Type": "application/json"}, cut=fault == "cut")

    def _choice(self, reply, index, chat, top):
        logprobs = None
        if top and self.control.logprobs:
            logprobs = logprobs_of(reply, top, chat_form=chat or self.control.chat_form)
        return choice(reply, index, chat=chat, logprobs=logprobs)

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
