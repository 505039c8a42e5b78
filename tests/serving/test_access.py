"""Who may use a server: keys as owners, and the names by which a server without keys is used."""

import socket

import gradio
import pytest
from starlette.testclient import TestClient

from judgelm.errors import ConfigError
from judgelm.serving.access import EVERYONE, ApiKeys, KnownHosts
from judgelm.serving.settings import check_exposure
from judgelm.serving.web.web_app import web_app
from tests.support.served import CHAT, error_of, review, served
from tests.support.served import raw_reply as raw


@pytest.fixture(scope="module")
def server():
    with served(settings={"allowed_hosts": ("judge.example.org",)}) as server:
        yield server


def refusal(known, host, origin=None):
    headers = [(b"host", host.encode())] + ([(b"origin", origin.encode())] if origin else [])
    error = known.refusal(headers)
    return error and error.status


def test_an_owner_is_a_digest_of_the_key_in_whichever_header():
    keys = ApiKeys(("sk-ann", "sk-ben"))
    ann = keys.owner([(b"authorization", b"Bearer sk-ann")])
    assert ann == keys.owner([(b"x-api-key", b"sk-ann")]) != keys.owner([(b"api-key", b"sk-ben")])
    assert "sk-ann" not in str(ann)
    assert keys.owner([(b"api-key", b"sk-eve")]) is None
    assert ApiKeys(()).owner([(b"api-key", b"sk-eve")]) == EVERYONE


@pytest.mark.parametrize(
    ("host", "status"),
    [
        *(("localhost", None), ("LOCALHOST:80", None), ("localhost.", None), ("127.0.0.1:8000", None)),
        *(("[::1]:8000", None), ("[0:0:0:0:0:0:0:1]", None), ("rebound.test", 421), ("localhost.rebound.test", 421)),
        *(("192.168.0.7", 421), ("rebound.test@localhost", 421), ("", 421), ("localhost, rebound.test", 421)),
    ],
)
def test_a_local_server_is_known_by_local_names_alone(host, status):
    assert refusal(KnownHosts("127.0.0.1"), host) == status


def test_a_server_for_all_addresses_is_known_by_addresses_and_allowed_names():
    known = KnownHosts("0.0.0.0", ["Judge.Example.org"])
    for host in ("192.168.0.7:8000", "[fe80::1]", "judge.example.org.", socket.gethostname()):
        assert refusal(known, host) is None
    assert refusal(known, "rebound.test") == 421
    assert refusal(KnownHosts("::", ["*"]), "rebound.test") is None
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


def test_a_server_without_keys_refuses_other_names_with_the_way_out_but_for_probes(server):
    for path in ("/v1/models", "/v1/files", "/metrics", "/openapi.json", "/nowhere"):
        reply = server.http.get(path, headers={"Host": "rebound.test"})
        assert (reply.status_code, error_of(reply)["code"]) == (421, "unknown_host")
        assert "--allowed-host rebound.test" in error_of(reply)["message"]
    for path in ("/livez", "/readyz", "/healthz", "/health"):
        assert server.http.get(path, headers={"Host": "10.1.2.3:8000"}).status_code == 200
    assert server.http.get("/v1/models", headers={"Host": "judge.example.org"}).status_code == 200


def test_a_page_of_another_site_cannot_post_blindly(server):
    sent = {"Origin": "https://rebound.test", "Content-Type": "text/plain"}
    reply = server.post(CHAT, review(), **sent)
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
def test_the_host_is_the_one_that_http_means(server, head, status):
    assert raw(server, head).split(b" ")[1] == status


def test_a_server_with_keys_is_used_by_any_name():
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
