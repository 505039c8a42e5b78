"""Headers of GGUF files: whatever the bytes, there is a header or an error that names the file."""

import numpy as np
from gguf import GGUFWriter
from hypothesis import strategies as st

from judgelm.engines.gguf.header import read_header
from tests.support import fuzzing


def test_damaged_headers(fuzz, tmp_path):
    path = tmp_path / "model.gguf"
    writer = GGUFWriter(path, "llama")
    writer.add_block_count(1)
    writer.add_custom_alignment(32)
    writer.add_add_bos_token(True)
    writer.add_token_list(["a", "b"])
    writer.add_token_scores([0.0, 1.0])
    for name in ("a.weight", "b.weight"):
        writer.add_tensor(name, np.zeros((2, 4), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    whole = path.read_bytes()

    def check(content):
        path.write_bytes(content)
        files = []
        if fuzzing.refusal(lambda: files.append(read_header(path)), path) is None:
            assert all(tensor.start + tensor.size <= len(content) for tensor in files[0].tensors)

    numbers = st.sampled_from([b"\0" * 8, b"\xff" * 8, b"\1" + b"\0" * 7, b"\0" * 7 + b"\x80", b"\xff" * 4, b"\x08"])
    written = st.tuples(st.integers(4, len(whole)), numbers).map(
        lambda change: whole[: change[0]] + change[1] + whole[change[0] + len(change[1]) :]
    )
    fuzz(written | fuzzing.mangled(st.just(whole)), check)
