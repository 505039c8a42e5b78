"""A server that speaks the hub's routes for uploads, as far as huggingface_hub calls them for a model."""

import base64
import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

TOKEN = "hf_" + "t" * 34


@dataclass
class Hub:
    """The repositories: who may see them and their files; and the requests that came, without those for the address."""

    address: str = ""
    private: dict[str, bool] = field(default_factory=dict)
    files: dict[str, dict[str, bytes]] = field(default_factory=dict)
    blobs: dict[str, bytes] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    readme_errors: list[str] = field(default_factory=list)
    commits: int = 0


@contextmanager
def upload_server() -> Iterator[Hub]:
    """Serve an empty hub whose only token is `TOKEN`; it owns the name `me`."""
    hub = Hub()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"hub": hub}))
    hub.address = f"http://127.0.0.1:{server.server_port}"
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: Hub

    def log_message(self, *arguments):
        pass

    def do_GET(self):
        self._answer("GET")

    def do_POST(self):
        self._answer("POST")

    def do_PUT(self):
        self._answer("PUT")

    def _answer(self, method):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = self.path.partition("?")[0]
        self.hub.requests.append(f"{method} {path}")
        if path.startswith("/blobs/"):  # storage: signed addresses, no token
            self.hub.blobs[path.removeprefix("/blobs/")] = body
            return self._send(200, {})
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            return self._send(401, {"error": "Invalid username or password."})
        for prefix, answer in (
            ("/api/validate-yaml", self._validate),
            ("/api/repos/create", self._create),
            ("/api/models/", self._model),
        ):
            if path.startswith(prefix):
                return answer(path, body)
        return self._lfs(path, body)

    def _validate(self, path, body):
        errors = [{"message": message} for message in self.hub.readme_errors]
        self._send(400 if errors else 200, {"errors": errors, "warnings": []})

    def _create(self, path, body):
        asked = json.loads(body)
        name = f"{asked['organization']}/{asked['name']}"
        if asked["organization"] != "me":
            return self._send(403, {"error": "You don't have the rights to create a model under this namespace"})
        url = {"url": f"{self.hub.address}/{name}"}
        if name in self.hub.private:
            return self._send(409, {"error": "You already created this model repo"} | url)
        self.hub.private[name] = asked.get("visibility") == "private" or bool(asked.get("private"))
        self.hub.files[name] = {}
        self._send(200, url)

    def _model(self, path, body):
        owner, name, *rest = path.removeprefix("/api/models/").split("/")
        repo = f"{owner}/{name}"
        if repo not in self.hub.private:
            return self._send(404, {"error": "Repository not found"}, {"X-Error-Code": "RepoNotFound"})
        if not rest:
            return self._send(200, {"id": repo, "private": self.hub.private[repo], "siblings": [], "tags": []})
        if rest[0] == "preupload":
            files = [
                {
                    "path": file["path"],
                    "uploadMode": "lfs" if file["path"].endswith(".safetensors") else "regular",
                    "shouldIgnore": False,
                    "oid": None,
                }
                for file in json.loads(body)["files"]
            ]
            return self._send(200, {"files": files})
        for line in body.splitlines():
            entry = json.loads(line)
            match entry["key"], entry["value"]:
                case "file", value:
                    self.hub.files[repo][value["path"]] = base64.b64decode(value["content"])
                case "lfsFile", value:
                    self.hub.files[repo][value["path"]] = self.hub.blobs[value["oid"]]
        self.hub.commits += 1
        oid = hashlib.sha1(str(self.hub.commits).encode()).hexdigest()
        return self._send(200, {"commitUrl": f"{self.hub.address}/{repo}/commit/{oid}", "commitOid": oid})

    def _lfs(self, path, body):
        objects = [
            {
                "oid": entry["oid"],
                "size": entry["size"],
                "actions": {"upload": {"href": f"{self.hub.address}/blobs/{entry['oid']}", "header": {}}},
            }
            for entry in json.loads(body)["objects"]
        ]
        self._send(200, {"transfer": "basic", "objects": objects})

    def _send(self, status, content, headers=None):
        data = json.dumps(content).encode()
        self.send_response(status)
        for name, value in (
            {"Content-Type": "application/json", "Content-Length": str(len(data))} | (headers or {})
        ).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)
