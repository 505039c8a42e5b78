"""Numbers that are not finite, or beyond 64 bits, are usage errors of every command that takes a number."""

import pytest

BATCH = ("--engine", "scripted", "--model", "8 6", "--quiet")


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--temperature", "nan"),
        ("--temperature", "inf"),
        ("--temperature", "1e6"),
        ("--temperature", "-1"),
        ("--seed", "1" + "0" * 30),
        ("--max-num-seqs", "1" + "0" * 30),
        ("--mode-arg", "max_tokens=.inf"),
        ("--mode-arg", "max_tokens=1" + "0" * 400),
        ("--mode-arg", "close_threshold=.nan"),
    ],
)
def test_a_number_that_nothing_could_use_is_refused_by_name(cli, pairs, tmp_path, option, value):
    code, _, err = cli("judgelm-batch", pairs(2), "-o", tmp_path / "o.jsonl", *BATCH, option, value)
    assert code in (1, 2), err
    name = value.partition("=")[0] if option == "--mode-arg" else option[2:]
    assert name in err
    assert "Traceback" not in err
    assert not (tmp_path / "o.jsonl").exists()


@pytest.mark.parametrize("value", [".nan", ".inf", "1.0e+300", "1" + "0" * 5000])
def test_a_file_has_the_same_bounds(cli, pairs, tmp_path, value):
    config = tmp_path / "run.yaml"
    config.write_text(f"temperature: {value}\n")
    code, _, err = cli("judgelm-batch", pairs(2), "-o", tmp_path / "o.jsonl", *BATCH, "--config", config)
    assert code in (1, 2), err
    assert "Traceback" not in err


@pytest.mark.parametrize("option", ["--request-timeout-s", "--body-timeout-s", "--max-body-mb", "--shutdown-s"])
@pytest.mark.parametrize("value", ["nan", "inf", "1e300"])
def test_a_server_has_finite_limits(cli, option, value):
    code, _, err = cli("judgelm", "serve", "8 6", "--engine", "scripted", option, value)
    assert code in (1, 2), err
    assert option in err
