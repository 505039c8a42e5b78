"""Label codes: whatever a label field holds, a file is read by one code or refused, in any order of its rows."""

from hypothesis import strategies as st

from judgelm.data.labelled_set import read_labels
from judgelm.data.samples import Reading
from judgelm.data.sources.codes import parse_label_code
from judgelm.errors import ConfigError, InputError, LabelCodeError
from tests.support import fuzzing

VALUES = st.one_of(
    st.sampled_from(
        (0, 1, 2, 3, -1, 0.5, 1.0, "0", " 1 ", "1.0", "A", "Model B", "TIE", "tie (bothbad)", "", None, True)
    ),
    st.sampled_from((1e999, float("nan"), 10**400, [1], [0, 2], {"winner": 1}, "inf", "1e999", "²", "一", "1_0", True)),
    st.text(max_size=5),
)
FIELDS = st.sampled_from(("winner", "label", "preference", "votes", "annotator1", "annotator2", "score"))
ROWS = st.lists(st.dictionaries(FIELDS, VALUES, max_size=3), min_size=1, max_size=5)
CODES = st.one_of(st.sampled_from(("0=first,1=second", "0=first,1=tie,2=second", "a=none")), st.text(max_size=12))


def test_a_file_is_read_by_one_code_or_refused_in_any_order(fuzz, tmp_path):
    path = tmp_path / "labels.jsonl"

    def read(rows, code):
        path.write_bytes(fuzzing.json_lines(rows))
        try:
            labelled = read_labels(str(path), on_reject=lambda reject: None, reading=Reading(label_code=code))
        except (InputError, LabelCodeError):
            return None
        return {name: label.winner for name, label in labelled.labels.items()}

    def check(drawn):
        fields, text = drawn
        rows = [{"id": f"r{n}", "winner": None, **row} for n, row in enumerate(fields)]
        try:
            code = parse_label_code(text)
        except ConfigError:
            code = None
        assert read(rows, code) == read(rows[::-1], code)

    fuzz(st.tuples(ROWS, CODES), check)
