"""The hub's own client uploads a judge to a server on this machine that speaks the hub's upload routes.

Files go by the LFS protocol (`HF_HUB_DISABLE_XET`): the hub's newer storage, Xet, has no server that could run here.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from judgelm.prompts.catalog import get_template
from judgelm.prompts.judge_card import Card, write_card
from tests.support.hub_server import TOKEN, running_hub

pytestmark = pytest.mark.conformance

ROOT = Path(__file__).parents[2]


@pytest.fixture
def judge(tmp_path):
    folder = tmp_path / "judge"
    folder.mkdir()
    template = get_template("judgelm-v1")
    write_card(folder, Card(template=template.id, template_sha=template.sha, training={"base_model": "owner/base"}))
    (folder / "model.safetensors").write_bytes(bytes(range(256)) * 4000)
    (folder / "config.json").write_text("{}")
    (folder / "checkpoint-8").mkdir()
    (folder / "checkpoint-8" / "optimizer.pt").write_bytes(b"state")
    return folder


@pytest.fixture
def hub():
    with running_hub(uploads=True) as server:
        yield server


def share(hub, folder, *arguments, token=TOKEN):
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("HF_", "HUGGING_FACE_"))
    } | {
        "HF_ENDPOINT": hub.url,
        "HF_HUB_DISABLE_XET": "1",
        "HF_HOME": str(folder.parent / "hf"),
        "PYTHONPATH": str(ROOT),
    }
    if token:
        environment["HF_TOKEN"] = token
    command = [sys.executable, "-m", "judgelm", "share", str(folder), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=120)
    assert TOKEN not in done.stdout + done.stderr
    return done.returncode, done.stdout, " ".join(done.stderr.split())


def test_a_dry_run_asks_the_hub_nothing(hub, judge):
    code, out, _ = share(hub, judge, "--to", "me/my-judge")
    assert code == 0
    assert "nothing was sent" in out
    assert hub.requests == []


def test_a_judge_arrives_whole_in_one_commit_and_private(hub, judge):
    code, out, errors = share(hub, judge, "--to", "me/my-judge", "--license", "apache-2.0", "--yes")
    assert code == 0, errors
    assert f"uploaded to {hub.url}/me/my-judge (private" in out
    files = hub.files["me/my-judge"]
    assert set(files) == {"README.md", "config.json", "judge.json", "model.safetensors"}
    assert files["model.safetensors"] == (judge / "model.safetensors").read_bytes()
    assert files["judge.json"] == (judge / "judge.json").read_bytes()
    assert files["README.md"].startswith(b"---\nlicense: apache-2.0\n")
    assert (hub.private["me/my-judge"], hub.commits) == (True, 1)
    assert not (judge / "README.md").exists()


def test_an_existing_public_repository_gets_nothing_by_mistake(hub, judge):
    hub.private["me/my-judge"], hub.files["me/my-judge"] = False, {}
    code, _, errors = share(hub, judge, "--to", "me/my-judge", "--yes")
    assert code == 1
    assert "me/my-judge exists and is public; pass --public" in errors
    assert hub.files["me/my-judge"] == {}


def test_a_second_upload_replaces_the_files_and_may_be_public(hub, judge):
    assert share(hub, judge, "--to", "me/my-judge", "--public", "--yes")[0] == 0
    (judge / "config.json").write_text('{"a": 1}')
    code, _, errors = share(hub, judge, "--to", "me/my-judge", "--public", "--yes")
    assert code == 0, errors
    assert hub.files["me/my-judge"]["config.json"] == b'{"a": 1}'
    assert hub.private["me/my-judge"] is False


@pytest.mark.parametrize(
    ("token", "name", "message"),
    [
        (None, "me/my-judge", "no token of the hub; make one with write permission"),
        ("hf_" + "x" * 34, "me/my-judge", "the hub does not accept the token; run hf auth login again"),
        (TOKEN, "others/my-judge", "the token may not write there"),
    ],
)
def test_errors_of_login_say_what_to_do(hub, judge, token, name, message):
    code, _, errors = share(hub, judge, "--to", name, "--yes", token=token)
    assert code == 1
    assert message in errors
    assert hub.files == {}


def test_metadata_that_the_hub_refuses_is_said_in_its_words(hub, judge):
    hub.readme_errors.append('"license" must be one of apache-2.0, mit')
    code, _, errors = share(hub, judge, "--to", "me/my-judge", "--license", "mine", "--yes")
    assert code == 1
    assert '"license" must be one of' in errors
    assert hub.commits == 0
