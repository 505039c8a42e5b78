"""Who may use a server: API keys, exposure to other machines, and accepted host names."""

import socket

import gradio
import pytest
from starlette.testclient import TestClient

from judgelm.errors import ConfigError, InputError
from judgelm.judges.resolve import resolve
from judgelm.serving.access import ApiKeys, KnownHosts
from judgelm.serving.settings import ServerSettings, check_exposure, read_keys
from judgelm.serving.web.web_app import web_app
from tests.support.served import CHAT, error_of, raw_reply, review, served


@pytest.fixture(scope="module")
def server():
    with served(settings={"allowed_hosts": ("judge.example.org",)}) as server:
        yield server


def refusal(known, host, origin=None):
    headers = [(b"host", host.encode())] + ([(b"origin", origin.encode())] if origin else [])
    error = known.refusal(headers)
    return error and error.status


def test_a_key_is_accepted_in_any_header():
    keys = ApiKeys(("sk-ann", "sk-ben"))
    for name, value in ((b"authorization", b"Bearer sk-ann"), (b"x-api-key", b"sk-ann"), (b"api-key", b"sk-ben")):
        assert keys.accept([(name, value)])
    assert not keys.accept([(b"api-key", b"sk-eve")])
    assert not keys.accept([])
    assert ApiKeys(()).accept([(b"api-key", b"sk-eve")])


@pytest.mark.parametrize(
    ("host", "status"),
    [
        *(("localhost", None), ("LOCALHOST:80", None), ("localhost.", None), ("127.0.0.1:8000", None)),
        *(("[::1]:8000", None), ("[0:0:0:0:0:0:0:1]", None), ("rebound.test", 421), ("localhost.rebound.test", 421)),
        *(("192.168.0.7", 421), ("rebound.test@localhost", 421), ("", 421), ("localhost, rebound.test", 421)),
    ],
)
def test_a_local_server_accepts_only_local_names(host, status):
    assert refusal(KnownHosts("127.0.0.1"), host) == status


def test_a_server_for_all_addresses_accepts_addresses_and_allowed_names():
    known = KnownHosts("0.0.0.0", ["Judge.Example.org"])
    for host in ("192.168.0.7:8000", "[fe80::1]", "judge.example.org.", socket.gethostname()):
        assert refusal(known, host) is None
    assert (refusal(known, "rebound.test"), refusal(KnownHosts("::", ["*"]), "rebound.test")) == (421, None)
    with pytest.raises(ConfigError, match="--allowed-host http"):
        KnownHosts("::", ["http://judge"])


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        *(("http://localhost:3000", None), ("http://192.168.0.7:8000", None), ("http://6.6.6.6", 403)),
        *(("null", 403), ("file://", 403), ("https://rebound.test", 403), ("https://192.168.0.7.rebound.test", 403)),
    ],
)
def test_pages_of_other_sites_are_refused(origin, status):
    assert refusal(KnownHosts("0.0.0.0"), "192.168.0.7:8000", origin) == status


def test_a_server_without_keys_refuses_other_names_except_for_probes(server):
    for path in ("/v1/models", "/metrics", "/openapi.json", "/nowhere"):
        reply = server.http.get(path, headers={"Host": "rebound.test"})
        assert (reply.status_code, error_of(reply)["code"]) == (421, "unknown_host")
        assert "--allowed-host rebound.test" in error_of(reply)["message"]
    for path in ("/livez", "/readyz", "/healthz", "/health"):
        assert server.http.get(path, headers={"Host": "10.1.2.3:8000"}).status_code == 200
    assert server.http.get("/v1/models", headers={"Host": "judge.example.org"}).status_code == 200


def test_a_page_of_another_site_cannot_post_blindly(server):
    reply = server.post(CHAT, review(), **{"Origin": "https://rebound.test", "Content-Type": "text/plain"})
    assert (reply.status_code, error_of(reply)["code"]) == (403, "foreign_origin")


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"GET /v1/models HTTP/1.0\r\n\r\n", b"421"),
        (b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nHost: rebound.test\r\n\r\n", b"400"),
        (b"GET /v1/models HTTP/1.1\r\nHost: rebound.test\r\nX-Forwarded-Host: localhost\r\n\r\n", b"421"),
    ],
    ids=["no host", "two hosts", "forwarded"],
)
def test_only_the_host_header_counts(server, head, status):
    assert raw_reply(server, head).split(b" ")[1] == status


def test_a_server_with_keys_accepts_any_name():
    with served(settings={"api_keys": ("sk-ann",)}) as server:
        sent = {"Host": "judge.test", "Origin": "https://other.test", "Authorization": "Bearer sk-ann"}
        assert server.http.get("/v1/models", headers=sent).status_code == 200
    with pytest.raises(ConfigError, match="--allowed-host"):
        check_exposure("::", ("sk-ann",), no_auth=False, way_out="", allowed_hosts=["judge"])


def test_the_page_without_a_password_refuses_other_names_and_sites():
    with gradio.Blocks() as page:
        gradio.Markdown("A judged text.")
    local = TestClient(web_app(page), base_url="http://localhost:7860")
    assert "A judged text." in local.get("/config").text
    for headers, status in (({"Host": "rebound.test"}, 421), ({"Origin": "https://rebound.test"}, 403)):
        reply = local.get("/config", headers=headers)
        assert (reply.status_code, "judged text" in reply.text) == (status, False)
        assert "--allowed-host rebound.test" in reply.text
    assert TestClient(web_app(page, password="p")).get("/").status_code == 200  # the page that asks for the password


def test_keys_come_from_options_file_and_environment(tmp_path, monkeypatch):
    file = tmp_path / "keys.txt"
    file.write_text("# ours\nsk-file\n\nsk-option\n")
    monkeypatch.setenv("JUDGELM_API_KEYS", "sk-a, sk-b")
    assert read_keys(["sk-option"], file) == ("sk-option", "sk-a", "sk-b", "sk-file")
    file.write_text("# none\n")
    with pytest.raises(InputError, match="no API keys"):
        read_keys([], file)
    with pytest.raises(InputError, match="cannot read"):
        read_keys([], tmp_path / "missing.txt")
    with pytest.raises(ConfigError, match="printable ASCII") as error:
        read_keys(["sk secret"], None)
    assert "secret" not in str(error.value) + repr(ServerSettings(model="m", api_keys=("secret",)))


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.0.7", "judge.example.org"])
def test_other_addresses_need_a_key_or_no_auth(host):
    for own in ("127.0.0.1", "localhost", "::1"):
        check_exposure(own, (), no_auth=False, way_out="add a key")
    with pytest.raises(ConfigError, match="--no-auth"):
        check_exposure(host, (), no_auth=False, way_out="add a key")
    check_exposure(host, ("sk",), no_auth=False, way_out="add a key")
    check_exposure(host, (), no_auth=True, way_out="add a key")
    with pytest.raises(ConfigError, match="conflicts with"):
        check_exposure(host, ("sk",), no_auth=True, way_out="add a key")


def test_the_public_name_of_a_folder_has_no_path(tmp_path):
    (tmp_path / "judge").mkdir()
    assert resolve(str(tmp_path / "judge"), "transformers").public_name == "judge"
    assert resolve("BAAI/JudgeLM-7B-v1.0", "vllm").public_name == "BAAI/JudgeLM-7B-v1.0"
    assert resolve("8 6", "scripted").public_name == "scripted"
