"""Removes from the environment of the pipeline's image, in the build stage, what none of its documented uses needs.

Only what is named here goes: what another version of a package adds stays until somebody has looked at it. A name that
matches nothing fails the build, because what it meant may be in the image under another name. To have a jar after all,
add it with JARS (jars.py).
"""

import shutil
import sys
from pathlib import Path

LEFT_OUT = (
    ("Scala shells", "pyspark/jars", "connect-repl scala-compiler-* spark-repl_*"),
    ("the state of streaming queries; `stream` runs batches", "pyspark/jars", "rocksdbjni-*"),
    (
        "the mathematics of machine learning, whose own jar stays: a Connect server loads it when a session ends",
        "pyspark/jars",
        "JTransforms-* algebra_* arpack* breeze* cats-kernel_* lapack-* spire*",
    ),
    (
        "Hive's catalog and SQL server; the tables are in no catalog",
        "pyspark/jars",
        "datanucleus-* derby* hive-exec-* hive-metastore-* hive-serde-* hive-service-rpc-* spark-hive*",
    ),
    ("a server, and an S3 client; deltalake and obstore have their own", "pyarrow", "*flight*.so* *_s3*.so*"),
    ("headers for C++", "pyarrow", "include"),
    ("the module once more, for PyPy", "zstandard", "_cffi*"),
    ("tests", ".", "numpy/**/tests pandas/tests pyarrow/tests"),
)
"""What it is and, where that does not say it, why it is not needed; the folder in site-packages; the names in it."""


def main(packages: Path) -> None:
    for _, folder, names in LEFT_OUT:
        for name in names.split():
            found = [*(packages / folder).glob(name)]
            if not found:
                sys.exit(f"leave_out: nothing in {packages / folder} matches {name}")
            for path in sorted(found, reverse=True):  # what is in another match first
                if path.is_dir():
                    shutil.rmtree(path)
                else:
                    path.unlink()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
