"""Load by wrk: keep-alive connections that send one request of a file after another, for a fixed time."""

import re
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from bench.processes import CannotMeasure, program

CONNECTIONS = 32
_END = b"\0"


@dataclass(frozen=True, slots=True)
class Answered:
    requests: int
    seconds: float


def write(requests: Iterable[bytes], file: Path) -> Path:
    """wrk's Lua script, which sends the requests of a file in turn."""
    file.write_bytes(b"".join(request + _END for request in requests))
    script = file.with_suffix(".lua")
    script.write_text(f"""\
local requests, turn = {{}}, 0
function init(arguments)
  local file = io.open("{file}", "rb")
  for request in file:read("*a"):gmatch("(%Z+)%z") do
    requests[#requests + 1] = request
  end
  file:close()
end
function request()
  turn = turn % #requests + 1
  return requests[turn]
end
""")
    return script


def put(port: int, script: Path, seconds: int, connections: int = CONNECTIONS) -> Answered:
    """Put load on a proxy; raises CannotMeasure if a request failed."""
    options = f"-t1 -c{connections} -d{seconds}s --timeout 10s".split()
    command = [program("wrk"), *options, "-s", str(script), f"http://127.0.0.1:{port}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=seconds + 30)
    if done.returncode:
        raise CannotMeasure(f"wrk ended with {done.returncode}: {done.stdout}{done.stderr}")
    return parse(done.stdout)


_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1, "m": 60}


def parse(output: str) -> Answered:
    """Parse wrk's report. The last two lines before the rates are present only if something failed."""
    if failed := re.findall(r"^\s*((?:Socket errors|Non-2xx or 3xx responses): .*)$", output, re.MULTILINE):
        raise CannotMeasure("; ".join(failed))
    counted = re.search(r"^\s*(\d+) requests in ([\d.]+)(us|ms|s|m),", output, re.MULTILINE)
    if counted is None or counted[1] == "0":
        raise CannotMeasure(f"wrk counted nothing: {output}")
    return Answered(int(counted[1]), float(counted[2]) * _UNITS[counted[3]])
