"""A build plan and its result as lines, as JSON and as a receipt. PURE."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from recipectl.images.build import BuildPlan, Built
from recipectl.images.smgate import Row
from recipectl.receipts import Receipt, Subject


def dry_run(todo: BuildPlan) -> list[str]:
    """What would be built: the Dockerfile and the context, file by file."""
    site = todo.overlay.manifest.base.site_packages
    listed = [f"{sha[:12]}  {site}/{file}" for file, sha in sorted(todo.overlay.outcome().items())]
    return [f"image {todo.tag}", f"input digest {todo.digest}", "--- Dockerfile", todo.dockerfile.rstrip(),
            "--- context: Dockerfile, and rootfs.tar with", *listed]  # fmt: skip


def planned(todo: BuildPlan) -> dict[str, Any]:
    """The same for programs."""
    return {"image": todo.tag, "input_digest": todo.digest, "base": todo.base_name, "dockerfile": todo.dockerfile,
            "files": todo.overlay.outcome(), "labels": dict(todo.labels)}  # fmt: skip


def lines(todo: BuildPlan, built: Built) -> list[str]:
    """What was proven, a line each, then the image."""
    out = [f"proven  {p.subject}: {p.seen}" for p in built.proven]
    how = "unchanged, reused" if built.reused else f"proven in {built.seconds['total']:.1f} s"
    return [*out, f"{todo.tag}  {built.image.id}  {how}"]


def answer(todo: BuildPlan, built: Built, rows: Sequence[Row]) -> dict[str, Any]:
    """The result for programs."""
    return {**planned(todo), "id": built.image.id, "layers": built.image.layers, "reused": built.reused,
            "seconds": dict(built.seconds), "proven": [asdict(p) for p in built.proven],
            "gate": [asdict(r) for r in rows]}  # fmt: skip


def receipt(
    recipe: str, lane: str, todo: BuildPlan, built: Built, rows: Sequence[Row], ran: Mapping[str, Any],
    times: tuple[str, str],
) -> Receipt:  # fmt: skip
    """The build's receipt: overlay, base and every layer as subjects, the whole proof as what was seen."""
    subjects = [
        Subject(f"overlay {todo.overlay.name}", todo.digest),
        Subject(f"base {todo.base.ref}", todo.base.digest),
    ]
    subjects += [Subject(f"layer {i} of {todo.tag}", layer) for i, layer in enumerate(built.image.layers)]
    seen = answer(todo, built, rows)
    return Receipt(
        "build", recipe, lane, times[0], times[1], tuple(subjects), ran,
        {k: seen[k] for k in ("id", "input_digest", "proven", "gate", "seconds")},
        {"license": todo.overlay.manifest.license, "labels": dict(todo.labels)},
    )  # fmt: skip
