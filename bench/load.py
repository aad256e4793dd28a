"""Load by wrk: keep-alive connections that ask for one topic after another, for a fixed time."""

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from bench.job import REQUEST_HEADERS, Workload
from bench.processes import CannotMeasure, program

CONNECTIONS = 32


@dataclass(frozen=True, slots=True)
class Answered:
    requests: int
    seconds: float


def script(workload: Workload, unlike: bool = False) -> str:
    """wrk's Lua: the requests are made once, each with the ids that a gateway gives it, and handed out in turn.

    Where they are to be unlike each other, each has a field that none had before.
    """
    headers = "\n".join(f'wrk.headers["{name}"] = "{value}"' for name, value in REQUEST_HEADERS.items())
    paths = ",\n".join(f'  "{path}"' for path in workload.paths())
    field = 'wrk.headers["X-Unlike"] = "UNLIKE"' if unlike else ""
    handed_out = 'string.gsub(requests[turn], "UNLIKE", string.format("%032x", count))' if unlike else "requests[turn]"
    return f"""\
{headers}
{field}
local paths = {{
{paths}
}}
local requests, turn, count = {{}}, 0, 0
function init(arguments)
  for place, path in ipairs(paths) do
    wrk.headers["x-request-id"] = string.format("4f1d9c3a-7b52-4e08-9a6f-%012x", place)
    wrk.headers["traceparent"] = string.format("00-0af7651916cd43dd8448eb21%08x-00f067aa0ba902b7-00", place)
    requests[place] = wrk.format("GET", path)
  end
end
function request()
  turn, count = turn % #requests + 1, count + 1
  local request = {handed_out}
  return request
end
"""


def put(port: int, script: Path, seconds: int) -> Answered:
    """Put load on a proxy; raises CannotMeasure where a lookup failed."""
    options = f"-t1 -c{CONNECTIONS} -d{seconds}s --timeout 10s".split()
    command = [program("wrk"), *options, "-s", str(script), f"http://127.0.0.1:{port}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=seconds + 30)
    if done.returncode:
        raise CannotMeasure(f"wrk ended with {done.returncode}: {done.stdout}{done.stderr}")
    return parse(done.stdout)


_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1, "m": 60}


def parse(output: str) -> Answered:
    """Read wrk's report. Its last two lines before the rates are there only where something failed."""
    if failed := re.findall(r"^\s*((?:Socket errors|Non-2xx or 3xx responses): .*)$", output, re.MULTILINE):
        raise CannotMeasure("; ".join(failed))
    counted = re.search(r"^\s*(\d+) requests in ([\d.]+)(us|ms|s|m),", output, re.MULTILINE)
    if counted is None or counted[1] == "0":
        raise CannotMeasure(f"wrk counted nothing: {output}")
    return Answered(int(counted[1]), float(counted[2]) * _UNITS[counted[3]])
