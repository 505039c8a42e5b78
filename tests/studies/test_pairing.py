import pytest

from judgelm.errors import InputError
from judgelm.records import Judgment, PairVerdict, Shown, Unparsed
from judgelm.studies.pairing import pair_label


def judgment(*shown, winner=1):
    return Judgment(sample_id="s", mode="pair", verdict=PairVerdict(winner=winner), shown=shown)


GIVEN = Shown(order=(0, 1), text="", scores=(8, 3))
SWAPPED = Shown(order=(1, 0), text="", scores=(6, 5))


@pytest.mark.parametrize(
    ("rule", "label"),
    # sample order: (8, 3) and (5, 6): +5 - 1 = +4 by the mean; +1 against -1 conflicts
    [("as_judged", -1), ("mean", 1), ("tie", 0)],
)
def test_order_rules(rule, label):
    assert pair_label(judgment(GIVEN, SWAPPED, winner=2), rule) == label


def test_mean_rule_knows_an_exact_tie():
    # 7.1 - 6.9 and 6.9 - 7.1 sum to 0, give or take float arithmetic
    swapped = Shown(order=(1, 0), text="", scores=(7.1, 6.9))
    assert pair_label(judgment(Shown(order=(0, 1), text="", scores=(7.1, 6.9)), swapped), "mean") == 0


def test_one_failed_order_fails_the_rule():
    broken = Shown(order=(1, 0), text="?", failure=Unparsed("off_grammar", "?"))
    assert pair_label(judgment(GIVEN, broken), "tie") is None
    assert pair_label(judgment(GIVEN, broken), "as_judged") == 1


def test_single_order_is_the_verdict_under_every_rule():
    assert pair_label(judgment(Shown(order=(0, 1), text="B"), winner=2), "tie") == -1


def test_orders_without_scores_cannot_be_combined_again():
    with pytest.raises(InputError, match="as_judged"):
        pair_label(judgment(Shown(order=(0, 1), text="A"), Shown(order=(1, 0), text="A")), "tie")


def test_reversed_file_beside_both_orders_is_an_error():
    with pytest.raises(InputError, match="one or the other"):
        pair_label(judgment(GIVEN, SWAPPED), "mean", reverse=judgment(GIVEN))
