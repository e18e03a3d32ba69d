"""Defaults whose only evidence was taken back (R006). PURE."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from recipectl.recipe.base import Evidence
from recipectl.recipe.lane import Lane
from recipectl.recipe.merge import Path

Said = tuple[str, Path, str, str | None]


def rest_on_retracted(at: Path, lane: Lane) -> Iterator[Said]:
    """One finding for each value in effect that all its evidence has been retracted from."""
    for path, evidence in _backed(lane):
        if evidence and all(e.status == "retracted" for e in evidence):
            dates = [e.date for e in evidence if e.date]
            when = f" on {max(dates)}" if dates else ""
            yield (
                "R006", (*at, *path), f"this default rests on evidence that was retracted{when}: {evidence[0].source}",
                "change the value, or add evidence that stands",
            )  # fmt: skip


def _backed(lane: Lane) -> Iterator[tuple[Path, Sequence[Evidence]]]:
    """Path inside the lane of each value in effect, with its evidence."""
    spec = lane.speculative
    for_k = [e for r in spec.rules if r.kind == "max" or spec.k in r.k for e in r.evidence]
    yield ("speculative", "k"), [*spec.evidence, *for_k]
    yield ("engine",), lane.engine.evidence
    if lane.engine.image is not None:
        yield ("engine", "image"), lane.engine.image.evidence
    yield ("container",), lane.container.evidence
    for section, values in (("args", lane.args_evidence), ("env", lane.env_evidence)):
        for key, evidence in values.items():
            if key in (lane.args if section == "args" else lane.env):
                yield (section, key), evidence
    gates = lane.gates
    yield ("gates",), gates.evidence
    for index, line in enumerate(gates.required_log):
        yield ("gates", "required_log", index), line.evidence
    for name, wanted in gates.acceptance.items():
        yield ("gates", "acceptance", name), wanted.evidence
