"""`check overlays/NAME`: the manifest alone, or held file by file against an unpacked tree. No Docker needed."""

from __future__ import annotations

from pathlib import Path

from recipectl.console import Console
from recipectl.errors import RecipeError, UsageError
from recipectl.images import overlay as overlays
from recipectl.images.overlay import FileResult, Overlay
from recipectl.images.overlay_files import load
from recipectl.images.rebase import Rebased, rebase
from recipectl.settings import Settings


def run(
    settings: Settings, console: Console, *, name: str, tree: Path | None, rebase: bool, strict: bool = False
) -> int:
    """0 if everything fits; else the exit code of the first thing that does not, after all of it was printed."""
    overlay = load(settings, name)
    opened = overlays.unresolved(overlay)
    for line in opened:
        console.warn(f"not resolved: {line}")
    if tree is None:
        if rebase:
            raise UsageError("--rebase needs a tree", next_step="add --tree DIR (a site-packages folder)")
        digest = overlays.input_digest(overlay, None, None)
        counts = f"{len(overlay.steps)} patches, {len(overlay.added)} files, {len(overlay.checks)} checks"
        console.print(f"{overlay.name}: {counts}; input digest without a base {digest}")
        console.document({"overlay": overlay.name, "unresolved": opened, "patches": overlay.patch_table()})
        return RecipeError.exit_code if strict and opened else 0
    site = _site(tree)
    if rebase:
        return _rebase(console, overlay, site)
    results = overlays.apply(overlay, lambda path: read(site / path))
    for result in results:
        _show(console, result)
    failed = [r for r in results if r.error]
    console.print(f"{len(results) - len(failed)} of {len(results)} files fit")
    console.document(
        {"overlay": overlay.name, "tree": str(site), "ok": not failed, "files": [_json(r) for r in results]}
    )
    return failed[0].error.exit_code if failed and failed[0].error else 0


def _site(tree: Path) -> Path:
    """The folder that holds the package: what was given, or the one package folder's parent."""
    if not tree.is_dir():
        raise UsageError("no such folder", on=str(tree), expected="an unpacked package tree (site-packages)")
    return tree.parent if (tree / "__init__.py").is_file() else tree


def read(path: Path) -> bytes | None:
    """A file's bytes, or None if there is none."""
    return path.read_bytes() if path.is_file() else None


def _show(console: Console, result: FileResult) -> None:
    hunks = f", {result.hunks} hunks" if result.hunks else ""
    console.print(f"{result.status:15}  {result.file}{hunks}")
    for line in result.error.lines() if result.error else ():
        console.print(f"    {line}")


def _json(result: FileResult) -> dict[str, object]:
    return {"file": result.file, "status": result.status, "hunks": result.hunks,
            "sha256": overlays.sha256(result.content) if result.content is not None else None,
            "error": result.error.to_json() if result.error else None}  # fmt: skip


def _rebase(console: Console, overlay: Overlay, site: Path) -> int:
    """Print new patches and the manifest lines that go with them. Nothing is written: a person reads them first."""
    proposals = rebase(overlay, lambda path: read(site / path))
    for p in proposals:
        console.notice(f"{p.step.name} -> {p.step.patch.file}")
        for note in p.notes:
            console.notice(f"  {note}")
        if p.diff is not None:
            console.print(
                f"# {p.step.patch.patch}\n#   before: {p.before}\n#   after: {p.after}\n{p.diff}".rstrip("\n")
            )
    stuck = [p for p in proposals if p.diff is None]
    console.document({"overlay": overlay.name, "patches": [_proposal(p) for p in proposals]})
    if stuck:
        names = ", ".join(p.step.name for p in stuck)
        console.warn(f"{len(stuck)} of {len(proposals)} patches need a person: {names}")
    return RecipeError.exit_code if stuck else 0


def _proposal(p: Rebased) -> dict[str, object]:
    return {"file": p.step.patch.file, "patch": p.step.patch.patch, "before": p.before, "after": p.after,
            "diff": p.diff, "notes": list(p.notes)}  # fmt: skip
