"""The table of judges in README and docs is the one that cards and stored results give."""

from benchmarks.which_judge.__main__ import PAGE, README, SETS, own_rows, page, published, readme_with, released_rows


def test_the_table_is_up_to_date():
    figures = published()
    rows = [*own_rows(), *released_rows(figures)]
    text = README.read_text(encoding="utf-8")
    assert readme_with(text, rows) == text, "run: python -m benchmarks.which_judge"
    assert page(rows, figures) == PAGE.read_text(encoding="utf-8"), "run: python -m benchmarks.which_judge"


def test_every_published_figure_is_of_a_known_judge_and_has_a_source():
    known = {row["judge"] for row in released_rows({})}
    for (model, name), fact in published().items():
        assert model in known
        assert name in SETS
        assert 0 < fact["percent"] < 100
        assert fact["source"].startswith("https://")
