"""`judgelm data get` before any download: the list, licences and terms, and errors."""

from judgelm.data.sources.public_datasets import dataset_names


def test_without_a_name_all_are_listed_with_licence_rows_and_whether_verified(cli):
    code, out, _ = cli("judgelm", "data", "get")
    assert code == 0
    lines = {line.split()[0]: line for line in out.splitlines() if line and not line.startswith(" ")}
    assert set(dataset_names()) <= lines.keys()
    assert "cc-by-nc-4.0; 105,000 rows; train, validation; unverified" in lines["judgelm-100k"]
    assert "gated" in lines["chatbot-arena-conversations"]
    assert "for evaluation only" in lines["judgebench"]


def test_a_dry_run_shows_terms_and_a_source_for_every_fact_and_downloads_nothing(cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, err = cli("judgelm", "data", "get", "judgelm-100k", "--dry-run")
    assert (code, out) == (0, "")
    assert "licence: cc-by-nc-4.0; no commercial use" in err
    assert "schema: unverified" in err
    assert "source of licence: https://huggingface.co/datasets/BAAI/JudgeLM-100K" in err
    assert list(tmp_path.iterdir()) == []


def test_a_gated_set_says_which_token_it_needs_and_where_it_is_had(cli):
    _, _, err = cli("judgelm", "data", "get", "chatbot-arena-conversations", "--dry-run")
    assert "access: gated; accept its conditions at https://huggingface.co/datasets/lmsys/" in err
    assert "https://huggingface.co/settings/tokens" in err
    assert "HF_TOKEN" in err


def test_mistakes_end_with_1_and_a_sentence(cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, _, err = cli("judgelm", "data", "get", "ultrafeedbak")
    assert (code, "did you mean ultrafeedback" in err) == (1, True)
    code, _, err = cli("judgelm", "data", "get", "ultrafeedback", "--split", "dev")
    assert (code, "split 'dev' does not exist" in err) == (1, True)
    code, _, err = cli("judgelm", "data", "get", "--update")
    assert (code, "no data set named" in err) == (1, True)
