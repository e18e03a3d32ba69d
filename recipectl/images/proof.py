"""What a built image must prove, and what its answer means. PURE: the container is run by `build.py`."""

from __future__ import annotations

import json
import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recipectl.errors import EngineError, PinError, RecipectlError
from recipectl.geometry import Layout, compute
from recipectl.geometry_model import KvModel
from recipectl.images.manifest import (
    ArchCheck,
    Check,
    GeometryCheck,
    KvGeometry,
    RegisteredCheck,
    ScriptCheck,
    VersionCheck,
)
from recipectl.images.overlay import Overlay, sha256
from recipectl.images.port import Finished
from recipectl.images.prover import MARK
from recipectl.images.smgate import covers

# Linux takes no argument longer than 128 KiB, but many of them; JSON as it is written here is ASCII.
ARGUMENT = 100_000


@dataclass(frozen=True)
class Proven:
    """One thing that was proven: a line for people and for the receipt."""

    subject: str
    ok: bool
    seen: str
    seconds: float = 0.0


def argv(overlay: Overlay, files: Mapping[str, bytes]) -> list[str]:
    """What to run inside the image."""
    source = (Path(__file__).parent / "prover.py").read_text()
    spec = json.dumps(_spec(overlay, files))
    pieces = [spec[at : at + ARGUMENT] for at in range(0, len(spec), ARGUMENT)]
    return [overlay.manifest.base.python, "-B", "-c", source, *pieces]


def _spec(overlay: Overlay, files: Mapping[str, bytes]) -> dict[str, Any]:
    checks = []
    for check, text in overlay.checks:
        data = check.model_dump(mode="json")
        checks.append({**data, "text": text} if text is not None else data)
    seconds = overlay.manifest.check_timeout_s
    return {"files": [_inside(overlay, path) for path in sorted(files)], "checks": checks, "timeout_s": seconds}


def _inside(overlay: Overlay, path: str) -> str:
    return posixpath.join(overlay.manifest.base.site_packages or "/", path)


def judge(overlay: Overlay, files: Mapping[str, bytes], done: Finished) -> list[Proven]:
    """Every file and check with what was seen. EngineError where the container gave no answer at all."""
    seconds = overlay.manifest.check_timeout_s
    if done.timed_out:
        raise EngineError(
            f"the checks inside the image did not end within {seconds} s", on=overlay.name,
            details=_tail(done.output), next_step="mend the check, or raise check_timeout_s in overlay.yaml",
        )  # fmt: skip
    line = next((x for x in reversed(done.output.splitlines()) if x.startswith(MARK)), None)
    if line is None:
        raise EngineError(
            "the checks inside the image died", on=overlay.name, seen=f"exit code {done.exit_code}",
            details=_tail(done.output), next_step=f"is {overlay.manifest.base.python} in the image?",
        )  # fmt: skip
    report = json.loads(line[len(MARK) :])
    out = [_file(path, data, report["files"].get(_inside(overlay, path), {})) for path, data in sorted(files.items())]
    for (check, _), answer in zip(overlay.checks, report["checks"], strict=True):
        out.append(_check(check, answer))
    return out


def _tail(output: str) -> list[str]:
    return output.splitlines()[-25:]


def _file(path: str, data: bytes, answer: Mapping[str, Any]) -> Proven:
    if answer.get("sha256") != sha256(data):
        return Proven(
            f"file {path}", False, f"sha256 {answer.get('sha256') or answer.get('error')}, not {sha256(data)}"
        )
    return Proven(f"file {path}", "error" not in answer, answer.get("error") or answer["sha256"])


def _check(check: Check, answer: Mapping[str, Any]) -> Proven:
    name = f"check {check.kind}" + (f" {check.source}" if isinstance(check, ScriptCheck) else "")
    seconds = float(answer.get("seconds", 0))
    if "error" in answer:
        return Proven(name, False, f"{answer['error']}\n{answer.get('trace', '')}".rstrip(), seconds)
    ok, seen = _verdict(check, answer["seen"])
    return Proven(name, ok, seen, seconds)


def _verdict(check: Check, seen: Any) -> tuple[bool, str]:
    if isinstance(check, VersionCheck):
        # A local version such as 0.32.0+cpu is the same sources built for another machine.
        return str(seen).split("+", maxsplit=1)[
            0
        ] == check.version, f"{check.distribution} {seen}, wanted {check.version}"
    if isinstance(check, RegisteredCheck):
        return not seen, f"not registered: {', '.join(seen)}" if seen else ", ".join(check.architectures)
    if isinstance(check, ArchCheck):
        wanted = [(int(c.split(".")[0]), int(c.split(".")[1])) for c in check.capabilities]
        missing = [c for c in wanted if not any(covers(a, c) for a in seen)]
        listed = " ".join(seen) or "no CUDA code at all"
        names = ", ".join(f"{a}.{b}" for a, b in missing or wanted)
        return not missing, f"torch has {listed}: {'nothing runs on' if missing else 'covers'} {names}"
    if isinstance(check, GeometryCheck):
        return _geometry(check.cases, seen)
    wanted_text = check.expect
    good = seen["rc"] == 0 and wanted_text in seen["stdout"]
    said = (seen["stdout"] + seen["stderr"]).strip()
    return good, wanted_text if good else f"exit code {seen['rc']}, expected to print {wanted_text!r}:\n{said}"


def _geometry(cases: Sequence[KvGeometry], seen: Sequence[Mapping[str, int]]) -> tuple[bool, str]:
    lines, good = [], True
    for case, got in zip(cases, seen, strict=True):
        model = KvModel(
            "overlay check", 1, 1, 0, latent=case.latent, linear_layers=1, linear_heads=case.linear_heads,
            linear_head_dim=case.linear_head_dim, linear_kernel=case.linear_kernel,
        )  # fmt: skip
        dtype = "fp8" if case.kv_bytes == 1 else "bfloat16"
        ours = compute(model, None, Layout(tensor=case.tensor, kv_dtype=dtype, k=case.k))
        same = (got["state_page"], got["token_bytes"]) == (ours.state_page, ours.token_bytes)
        good = good and same
        lines.append(
            f"TP {case.tensor} K {case.k}: engine {got['state_page']} B a state and {got['token_bytes']} B a token, "
            f"recipectl {ours.state_page} and {ours.token_bytes}, block {ours.block}, page {ours.page}"
        )
    return good, "; ".join(lines)


def refuse(overlay: Overlay, proven: Sequence[Proven]) -> RecipectlError | None:
    """The error of a failed proof: PinError for bytes that are not the overlay's, EngineError for a failed check."""
    bad = [p for p in proven if not p.ok]
    if not bad:
        return None
    details = [
        f"{p.subject}: {line}" if i == 0 else f"    {line}" for p in bad for i, line in enumerate(p.seen.splitlines())
    ]
    if any(p.subject.startswith("file ") for p in bad):
        return PinError("the image does not hold what the overlay put there", on=overlay.name, details=details,
                        next_step="nothing was tagged; look at the base image's own start-up files")  # fmt: skip
    return EngineError("a check inside the built image failed; nothing was tagged", on=overlay.name, details=details,
                       next_step=f"see overlays/{overlay.name}/README.md, or mend the check")  # fmt: skip
