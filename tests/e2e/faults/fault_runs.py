"""One fault under load: steady, with the fault, healed until all is normal again, quiet, and the verdict."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

from checker import seen, violations
from fault import Fault
from stage import Stage, staged

STEADY = 200
"""Operations before the fault."""
DURING = 300
"""Operations that end while it lasts, after an operator can see it."""
ROW = 60
"""Normal operations in a row after which all is normal again."""
FEW = 5
"""Violations that are shown."""
SAID = 5000
"""Characters of the sidecar's log that are shown."""


@dataclass(frozen=True, slots=True)
class Result:
    seen: Counter[str]
    """What clients saw from the fault until all was normal again, by kind."""
    seconds: float
    """From the beginning of its healing until all was normal again."""


async def run(fault: Fault, folder: Path) -> Result:
    """Fails where a rule is broken, or an operator does not see what the table says."""
    async with staged(folder, fault.prepared) as stage:
        try:
            return await _run(fault, stage)
        except BaseException as error:
            error.add_note(f"the sidecar said:\n{stage.output[-SAID:]}")
            raise


async def _run(fault: Fault, stage: Stage) -> Result:
    load = stage.load
    async with load.running():
        await load.more(STEADY)
        early = [one for one in load.ended if not one.is_normal]
        metric = (await stage.metrics())[fault.metric]
        begun = monotonic()
        async with fault.applied(stage):
            await stage.shows(fault.log, fault.metric, metric)
            await load.more(DURING)
            healing = monotonic()
        normal = await load.normal(ROW)
    recorded = await stage.recorded()
    received = stage.received()
    broken = violations(load.operations, received, recorded, stage.losses)
    assert not broken, "\n".join([f"{len(broken)} violations", *broken[:FEW]])
    assert not early, f"not normal before the fault: {early[:FEW]}"
    assert "Traceback" not in stage.output
    during = [one for one in load.operations if one.ended >= begun and one.began < normal]
    return Result(seen(during, received), max(0.0, normal - healing))
