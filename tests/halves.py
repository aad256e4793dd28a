"""Tests in two processes at a time, for two cores: those of some folders, and all others.

    python tests/halves.py WHOLE PART [PART...] [-- OPTIONS OF PYTEST]

What the tests of the parts say is shown when the others are through.
"""

import subprocess
import sys
import tempfile

PYTEST = (sys.executable, "-m", "pytest")


def main(arguments: list[str]) -> int:
    split = arguments.index("--") if "--" in arguments else len(arguments)
    (whole, *parts), options = arguments[:split], arguments[split + 1 :]
    with (
        tempfile.TemporaryFile("w+") as said,
        subprocess.Popen([*PYTEST, *parts, *options], stdout=said, stderr=subprocess.STDOUT) as beside,
    ):
        try:
            others = subprocess.run([*PYTEST, whole, *(f"--ignore={part}" for part in parts), *options]).returncode
            own = beside.wait()
        finally:
            beside.terminate()
        said.seek(0)
        sys.stdout.write(said.read())
    return others or own


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
