"""All tests, in two processes at a time: those of the pipeline take as long as all others together.

    python tests/halves.py

What the pipeline's say is shown when the others are through.
"""

import subprocess
import sys
import tempfile

PYTEST = (sys.executable, "-m", "pytest")


def main() -> int:
    with (
        tempfile.TemporaryFile("w+") as said,
        subprocess.Popen([*PYTEST, "tests/pipeline"], stdout=said, stderr=subprocess.STDOUT) as pipeline,
    ):
        try:
            others = subprocess.run([*PYTEST, "tests", "--ignore=tests/pipeline"]).returncode
            own = pipeline.wait()
        finally:
            pipeline.terminate()
        said.seek(0)
        sys.stdout.write(said.read())
    return others or own


if __name__ == "__main__":
    sys.exit(main())
