"""A small hub of files on this machine: data sets and models for the real `huggingface_hub` and `datasets` clients."""

import hashlib
import json
import re
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

_API = re.compile(
    r"/api/(?P<kind>dataset|model)s/(?P<repo>[^/]+/[^/]+)(?:/(?P<verb>revision|tree|paths-info|auth-check)"
    r"(?:/(?P<revision>[^/]+))?(?:/(?P<path>.+))?)?"
)
_RESOLVE = re.compile(r"/(?P<kind>datasets/)?(?P<repo>[^/]+/[^/]+)/resolve/(?P<revision>[^/]+)/(?P<path>.+)")


@dataclass
class Repository:
    """A repository: its revisions, oldest first, and who may read its files."""

    gated: bool = False
    tokens: frozenset = frozenset()
    licence: str | None = None
    revisions: dict = field(default_factory=dict)

    @property
    def head(self):
        return list(self.revisions)[-1]


class Hub:
    def __init__(self):
        self.repositories = {}
        self.requests = []
        self.break_after = {}
        self.held = set()
        self.url = ""

    def commit(self, kind, repo, files, *, gated=False, tokens=(), licence=None):
        contents = {path: _content(file) for path, file in files.items()}
        entry = self.repositories.setdefault((kind, repo), Repository())
        entry.gated, entry.tokens, entry.licence = gated, frozenset(tokens), licence
        digest = hashlib.sha1(f"{repo} {len(entry.revisions)}".encode())
        for path in sorted(contents):
            digest.update(path.encode() + contents[path])
        entry.revisions[digest.hexdigest()] = contents
        return digest.hexdigest()

    def environment(self, cache, token=None):
        variables = {"HF_ENDPOINT": self.url, "HF_HOME": str(cache), "HF_HUB_DISABLE_TELEMETRY": "1"}
        return variables | ({"HF_TOKEN": token} if token else {})

    def downloads(self, path=""):
        """Downloads so far whose address ends with that path, as values of the header Range."""
        served = [(url, span) for method, url, span in self.requests if method == "GET" and "/resolve/" in url]
        return [span for url, span in served if url.endswith(path)]


def _content(file):
    return file.read_bytes() if isinstance(file, Path) else file.encode() if isinstance(file, str) else file


@contextmanager
def running_hub():
    hub = Hub()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"hub": hub}))
    hub.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub = None

    def log_message(self, *arguments):
        pass

    def do_GET(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        url = urlsplit(self.path)
        self.hub.requests.append((self.command, url.path, self.headers.get("Range")))
        if match := _API.fullmatch(url.path):
            self._api(match, parse_qs(url.query), body)
        elif match := _RESOLVE.fullmatch(url.path):
            self._resolve(match)
        else:
            self._refuse(404, "", f"no such route: {url.path}")

    do_HEAD = do_POST = do_GET  # noqa: N815

    def _repository(self, kind, repo):
        """The repository, or None after a refusal, which a client without a token cannot tell from a private one."""
        entry = self.hub.repositories.get((kind, repo))
        if entry is None:
            status = 404 if self.headers.get("Authorization") else 401
            self._refuse(status, "RepoNotFound", "Repository not found")
        return entry

    def _may_read(self, entry):
        token = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
        if not entry.gated or token in entry.tokens:
            return True
        self._refuse(403 if token else 401, "GatedRepo", "Access to this repository is restricted")
        return False

    def _files(self, entry, revision):
        name = unquote(revision or "main")
        sha = entry.head if name == "main" else name
        if sha not in entry.revisions:
            self._refuse(404, "RevisionNotFound", f"Invalid rev id: {name}")
            return None
        return sha, entry.revisions[sha]

    def _api(self, match, query, body):
        entry = self._repository(match["kind"], match["repo"])
        if entry is None:
            return
        if match["verb"] == "auth-check":
            if self._may_read(entry):
                self._json({})
            return
        found = self._files(entry, match["revision"])
        if found is None:
            return
        sha, files = found
        if match["verb"] not in ("tree", "paths-info"):
            self._json(_info(match["repo"], sha, files, entry))
        elif not self._may_read(entry):
            return
        elif match["verb"] == "tree":
            self._tree(files, unquote(match["path"] or ""), query)
        else:
            self._paths_info(files, body)

    def _tree(self, files, folder, query):
        prefix = f"{folder}/" if folder else ""
        recursive = query.get("recursive", [""])[0].lower() == "true"
        entries = {}
        for path in files:
            if not path.startswith(prefix):
                continue
            parts = path.removeprefix(prefix).split("/")
            for depth in range(1, len(parts) if recursive else min(len(parts), 2)):
                name = prefix + "/".join(parts[:depth])
                entries[name] = _folder_entry(name)
            if recursive or len(parts) == 1:
                entries[path] = _file_entry(path, files[path])
        if folder and not entries:
            self._refuse(404, "EntryNotFound", f"{folder} does not exist")
            return
        self._json(list(entries.values()))

    def _paths_info(self, files, body):
        text = body.decode()
        paths = json.loads(text).get("paths", []) if text.startswith("{") else parse_qs(text).get("paths", [])
        entries = []
        for path in [paths] if isinstance(paths, str) else paths:
            if path in files:
                entries.append(_file_entry(path, files[path]))
            elif any(known.startswith(f"{path}/") for known in files):
                entries.append(_folder_entry(path))
        self._json(entries)

    def _resolve(self, match):
        kind = "dataset" if match["kind"] else "model"
        entry = self._repository(kind, match["repo"])
        if entry is None or not self._may_read(entry):
            return
        found = self._files(entry, match["revision"])
        if found is None:
            return
        sha, files = found
        path = unquote(match["path"])
        if path not in files:
            self._refuse(404, "EntryNotFound", "Entry not found", {"X-Repo-Commit": sha})
            return
        self._send_file(sha, path, files[path])

    def _send_file(self, sha, path, content):
        span = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range") or "")
        start = int(span[1]) if span else 0
        end = min(int(span[2]) + 1, len(content)) if span and span[2] else len(content)
        headers = {
            "ETag": f'"{hashlib.sha256(content).hexdigest()}"', "X-Repo-Commit": sha, "Accept-Ranges": "bytes",
            "Content-Type": "application/octet-stream", "Content-Length": str(end - start),
        }  # fmt: skip
        if span:
            headers["Content-Range"] = f"bytes {start}-{end - 1}/{len(content)}"
        self._head(206 if span else 200, headers)
        if self.command == "HEAD":
            return
        while path in self.hub.held:
            time.sleep(0.02)
        cut = self.hub.break_after.pop(path, None)
        self.wfile.write(content[start:end] if cut is None else content[start : start + cut])
        if cut is not None:
            self.close_connection = True

    def _json(self, value, status=200, headers=()):
        body = json.dumps(value).encode()
        self._head(status, {"Content-Type": "application/json", "Content-Length": str(len(body)), **dict(headers)})
        if self.command != "HEAD":
            self.wfile.write(body)

    def _refuse(self, status, code, message, more=()):
        headers = {"X-Error-Message": message} | ({"X-Error-Code": code} if code else {}) | dict(more)
        self._json({"error": message}, status, headers)

    def _head(self, status, headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()


def _info(repo, sha, files, entry):
    return {
        "_id": sha[:24], "id": repo, "author": repo.partition("/")[0], "sha": sha,
        "lastModified": "2026-01-01T00:00:00.000Z", "createdAt": "2026-01-01T00:00:00.000Z", "private": False,
        "disabled": False, "gated": "auto" if entry.gated else False, "downloads": 0, "likes": 0, "tags": [],
        "siblings": [{"rfilename": path} for path in files],
        **({"cardData": {"license": entry.licence}} if entry.licence else {}),
    }  # fmt: skip


def _file_entry(path, content):
    oid = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
    return {"type": "file", "path": path, "size": len(content), "oid": oid}


def _folder_entry(path):
    return {"type": "directory", "path": path, "size": 0, "oid": hashlib.sha1(path.encode()).hexdigest()}
