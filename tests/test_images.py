"""How the images are made smaller, and what their builds say they weigh."""

import os
from pathlib import Path

import pytest

from deploy.image import leave_out
from deploy.image.build import LARGEST, sized, total, weighed

PACKAGES = "opt/pulsar-ingress-proxy/lib/python3.13/site-packages"


def put(root: Path, path: str, content: bytes = b"") -> Path:
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)
    return file


def test_image_parts_are_weighed_by_package_with_the_largest_first(tmp_path: Path) -> None:
    put(tmp_path, f"{PACKAGES}/pyspark/jars/core.jar", os.urandom(4_000_000))
    put(tmp_path, f"{PACKAGES}/pyspark/jars/more/extra.jar", os.urandom(1_000_000))
    put(tmp_path, "usr/lib/jvm/java-21/lib/modules", bytes(4_000_000))
    put(tmp_path, f"{PACKAGES}/numpy.libs/libblas.so", os.urandom(1_000_000))
    put(tmp_path, f"{PACKAGES}/numpy/core.so", os.urandom(1_000_000))
    put(tmp_path, f"{PACKAGES}/numpy-2.5.4.dist-info/METADATA", os.urandom(100_000))
    put(tmp_path, f"{PACKAGES}/pyspark/sql/session.py", os.urandom(900_000))
    put(tmp_path, "usr/local/lib/python3.13/os.py", os.urandom(800_000))
    put(tmp_path, "usr/bin/bash", os.urandom(3_000_000))
    parts = weighed(tmp_path)
    assert [part.name for part in parts] == [
        "pyspark/jars", "usr/lib/jvm", "numpy", "pyspark", "usr/local/lib/python3", "others",
    ]  # fmt: skip
    weights = {part.name: (round(part.bytes / 1e5), round(part.compressedBytes / 1e5)) for part in parts}
    assert weights["pyspark/jars"] == (50, 50)
    assert weights["usr/lib/jvm"] == (40, 0)
    assert weights["numpy"] == (21, 21)
    size, compressed = total(parts)
    assert 15_800_000 < size < 16_000_000
    assert 11_800_000 < compressed < 12_000_000
    assert [*sized(parts)][:2] == ["size      16 MB, 12 MB compressed:", "       5 MB      5 MB  pyspark/jars"]


def test_parts_of_an_image_beyond_the_largest_are_one(tmp_path: Path) -> None:
    for number in range(LARGEST + 3):
        put(tmp_path, f"{PACKAGES}/package{number:02}/module.so", bytes(100_000 * (20 - number)))
    *large, others = weighed(tmp_path)
    assert [part.name for part in large] == [f"package{number:02}" for number in range(LARGEST)]
    assert others.name == "others"
    assert others.bytes > sum(100_000 * (20 - number) for number in range(LARGEST, LARGEST + 3))


def test_leave_out_removes_what_is_named_and_nothing_else(tmp_path: Path) -> None:
    for _, folder, names in leave_out.LEFT_OUT:
        for name in names.split():
            put(tmp_path, f"{folder}/{name.replace('**', 'fft').replace('*', 'x')}/within/file")
    kept = {put(tmp_path, "pyspark/jars/spark-core_2.13-9.9.9.jar"), put(tmp_path, "numpy/fft/helper.py")}
    leave_out.main(tmp_path)
    assert {path for path in tmp_path.rglob("*") if path.is_file()} == kept


def test_leave_out_removes_a_folder_of_tests_within_another(tmp_path: Path) -> None:
    for _, folder, names in leave_out.LEFT_OUT:
        for name in names.split():
            put(tmp_path, f"{folder}/{name.replace('**/', '').replace('*', 'x')}/within/file")
    put(tmp_path, "numpy/tests/inner/tests/file")
    leave_out.main(tmp_path)
    assert not (tmp_path / "numpy/tests").exists()


def test_leave_out_fails_where_a_name_matches_nothing(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"nothing in .*/pyspark/jars matches connect-repl"):
        leave_out.main(tmp_path)
