"""Files' bytes to lines: every line once, with its file, whatever the files are cut into."""

import gzip
import zlib
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_ingress_pipeline.ingest import lines
from pulsar_ingress_pipeline.ingest.lines import Block, Broken, Lines, blocks, unpacked

texts = st.lists(st.binary(max_size=12).map(lambda text: text.replace(b"\n", b"")), max_size=8)


def cut(data: bytes, size: int) -> list[bytes]:
    return [data[start : start + size] for start in range(0, len(data), size)]


def told(made: list[Block]) -> list[tuple[str, bytes]]:
    return [(block.file_of(place), text) for block in made for place, text in enumerate(block.lines)]


@given(st.lists(st.tuples(texts, st.booleans(), st.booleans()), max_size=6), st.integers(1, 40), st.integers(1, 64))
def test_every_line_comes_once_with_its_file(
    files: list[tuple[list[bytes], bool, bool]], room: int, piece: int
) -> None:
    expected, given_ = [], []
    for number, (own, is_packed, is_ended) in enumerate(files):
        data = b"\n".join(own) + (b"\n" if is_ended and own else b"")
        name = f"{number}.jsonl{'.gz' if is_packed else ''}"
        given_.append((name, gzip.compress(data[:20]) + gzip.compress(data[20:]) if is_packed else data))
        found = data.split(b"\n")
        expected += [(name, text) for text in (found if found[-1] else found[:-1])]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines, "BLOCK", room)
        made = list(blocks((name, cut(data, piece)) for name, data in given_))
    assert told(made) == expected
    assert sum(len(block.lines) for block in made) == len(expected)
    assert all(not block.broken for block in made)
    counted = Counter(file for block in made for file, count in block.lines_by_file() for _ in range(count))
    assert counted == Counter(name for name, _ in expected)


@pytest.mark.parametrize("size", range(1, 60))
def test_truncated_gzip_keeps_its_whole_lines_and_is_reported_as_broken(size: int) -> None:
    packed = gzip.compress(b"".join(b"line %d\n" % number for number in range(9)))
    torn = packed[: -min(size, len(packed) - 1)]
    made = list(blocks([("torn.gz", cut(torn, 1)), ("whole", [b"after\n"])]))
    left = zlib.decompressobj(31).decompress(torn).rpartition(b"\n")[0].splitlines()
    assert told(made) == [("torn.gz", text) for text in left] + [("whole", b"after")]
    assert [broken for block in made for broken in block.broken] == [
        ("torn.gz", "gzip breaks off: the rest of the file is lost")
    ]


def test_bytes_that_are_not_gzip_are_reported_as_damage() -> None:
    with pytest.raises(Broken, match=r"gzip is damaged: the rest of the file is lost \("):
        list(unpacked([gzip.compress(b"one\n") + b"rubbish"]))


@pytest.mark.parametrize("count", [2, 3, 7])
def test_halves_contain_every_line_and_differ_by_at_most_one(count: int) -> None:
    whole = Lines(b"".join(b"x" * number + b"\n" for number in range(count)))
    first, second = whole.halves()
    assert [*first, *second] == list(whole)
    assert abs(len(first) - len(second)) <= 1


@pytest.mark.parametrize(
    ("data", "are_braced"),
    [(b"{}\n", True), (b"{}\n{}\n", True), (b"{\n}\n", False), (b"{}\n}\n{}\n", False), (b"{}\n\n{}\n", False)],
)
def test_are_braced_is_true_only_if_every_line_is_in_braces(data: bytes, are_braced: bool) -> None:
    assert Lines(data).are_braced is are_braced


@pytest.mark.parametrize("text", [b"a\nb\n", b"a", b""])
def test_utf_8_byte_order_mark_is_skipped(text: bytes) -> None:
    marked = b"\xef\xbb\xbf" + text
    made = list(blocks([("plain", cut(marked, 1)), ("packed.gz", cut(gzip.compress(marked), 1))]))
    assert [found for _, found in told(made)] == text.splitlines() * 2
