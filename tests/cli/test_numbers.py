"""Numbers that are not finite, or exceed 64 bits, are usage errors of every command."""

import pytest

HUGE = "1" + "0" * 400


@pytest.mark.parametrize(
    ("option", "value"),
    [
        *(("--temperature", value) for value in ("nan", "inf", "1e6", "-1")),
        *((option, "1" + "0" * 30) for option in ("--seed", "--max-num-seqs")),
        *(("--mode-arg", f"max_tokens={value}") for value in (".inf", HUGE)),
        ("--mode-arg", "close_threshold=.nan"),
        *(("--config", f"temperature: {value}\n") for value in (".nan", ".inf", "1.0e+300", "1" + "0" * 5000)),
    ],
)
def test_out_of_range_numbers_are_refused_by_name(batch, pairs, tmp_path, option, value):
    name = value.partition("=")[0] if option == "--mode-arg" else option[2:]
    if option == "--config":
        (tmp_path / "run.yaml").write_text(value)
        value, name = tmp_path / "run.yaml", ""
    code, _, err = batch(pairs(2), option, value)
    assert code in (1, 2), err
    assert name in err
    assert "Traceback" not in err
    assert not (tmp_path / "out.jsonl").exists()
