"""XXH64 of many texts at once, as Spark's `xxhash64` has it: an index made here and one made there are the same.

Texts of one length are the rows of a matrix, and each step of the algorithm is one step for all of them.
"""

import numpy as np
import numpy.typing as npt
import pyarrow as pa  # type: ignore[import-untyped]

_SEED = 42
_P1, _P2, _P3, _P4, _P5 = (
    np.uint64(prime)
    for prime in (
        0x9E3779B185EBCA87,
        0xC2B2AE3D27D4EB4F,
        0x165667B19E3779F9,
        0x85EBCA77C2B2AE63,
        0x27D4EB2F165667C5,
    )
)

_ROWS = 1 << 13
"""Texts that are hashed at once: what a processor's cache holds takes a third of the time."""

Words = npt.NDArray[np.uint64]


def xxhash64(texts: pa.StringArray) -> npt.NDArray[np.int64]:
    """The hash of each; none may be null."""
    _, offsets_buffer, data_buffer = texts.buffers()
    offsets = np.frombuffer(offsets_buffer, np.int32)[texts.offset : texts.offset + len(texts) + 1]
    data = np.frombuffer(data_buffer, np.uint8) if data_buffer is not None else np.empty(0, np.uint8)
    starts, lengths = offsets[:-1], np.diff(offsets)
    hashes = np.empty(len(texts), np.uint64)
    for length in np.unique(lengths):
        rows = np.flatnonzero(lengths == length)
        if len(rows) == len(texts):  # all are, and follow each other
            matrix = data[offsets[0] : offsets[-1]].reshape(len(texts), length)
            for start in range(0, len(texts), _ROWS):
                hashes[start : start + _ROWS] = _hashes(matrix[start : start + _ROWS])
        else:
            hashes[rows] = _hashes(data[starts[rows][:, None] + np.arange(length)])
    return hashes.view(np.int64)


def _hashes(texts: npt.NDArray[np.uint8]) -> Words:
    """One hash for each row."""
    count, length = texts.shape
    with np.errstate(over="ignore"):
        place = 0
        if length >= 32:
            seed = np.uint64(_SEED)
            starts = (seed + _P1 + _P2, seed + _P2, seed, seed - _P1)
            lanes = [np.full(count, start, np.uint64) for start in starts]
            while place + 32 <= length:
                words = _words(texts, place, 32, "<u8")
                lanes = [_round(lane, words[:, number]) for number, lane in enumerate(lanes)]
                place += 32
            hashes = _turned(lanes[0], 1) + _turned(lanes[1], 7) + _turned(lanes[2], 12) + _turned(lanes[3], 18)
            for lane in lanes:
                hashes = (hashes ^ _round(np.uint64(0), lane)) * _P1 + _P4
        else:
            hashes = np.full(count, np.uint64(_SEED) + _P5, np.uint64)
        hashes = hashes + np.uint64(length)
        while place + 8 <= length:
            hashes = _turned(hashes ^ _round(np.uint64(0), _words(texts, place, 8, "<u8")[:, 0]), 27) * _P1 + _P4
            place += 8
        if place + 4 <= length:
            hashes = _turned(hashes ^ (_words(texts, place, 4, "<u4")[:, 0].astype(np.uint64) * _P1), 23) * _P2 + _P3
            place += 4
        for column in range(place, length):
            hashes = _turned(hashes ^ (texts[:, column].astype(np.uint64) * _P5), 11) * _P1
        for shift, prime in ((33, _P2), (29, _P3)):
            hashes = (hashes ^ (hashes >> np.uint64(shift))) * prime
        return hashes ^ (hashes >> np.uint64(32))


def _words(texts: npt.NDArray[np.uint8], place: int, size: int, form: str) -> Words:
    return np.ascontiguousarray(texts[:, place : place + size]).view(form)


def _round(lane: Words | np.uint64, word: Words) -> Words:
    return _turned(lane + word * _P2, 31) * _P1


def _turned(word: Words, bits: int) -> Words:
    return (word << np.uint64(bits)) | (word >> np.uint64(64 - bits))
