"""One recipe held against every rule: file, parts, lock, K. Reads the recipe, its lock and the files it names."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from recipectl import lockfile, speculative
from recipectl.errors import PinError
from recipectl.lockfile import Lock
from recipectl.recipe import catalog, rules
from recipectl.recipe.codes import level_of
from recipectl.recipe.findings import Finding, Level, in_file_order
from recipectl.recipe.parse import Document
from recipectl.speculative import RuleVerdict

_LEVELS: dict[str, Level] = {"FAIL": "error", "WARN": "warning"}


@dataclass
class Checked:
    """Everything that is known about one recipe. `verdicts` are by lane, a variant as `lane/variant`."""

    entry: catalog.Entry
    document: Document
    lock: Lock | None = None
    findings: list[Finding] = field(default_factory=list)
    verdicts: dict[str, list[RuleVerdict]] = field(default_factory=dict)

    def count(self, level: str) -> int:
        """How many findings of a level."""
        return sum(f.level == level for f in self.findings)

    @property
    def not_checked(self) -> int:
        """Rules that could not be checked yet."""
        return sum(v.verdict == "NOT_CHECKED" for found in self.verdicts.values() for v in found)


def check_entry(entry: catalog.Entry, lane_name: str | None = None) -> Checked:
    """Check a recipe; with `lane_name`, K rules of that lane only."""
    document = catalog.read(entry)
    checked = Checked(entry, document)
    found: dict[tuple[object, ...], Finding] = {}
    about_lock = list(_lock(checked))
    for finding in [*_pinned(document.findings, checked.lock), *about_lock, *_lanes(checked, lane_name)]:
        found.setdefault((finding.code, finding.line, finding.column, finding.message), finding)
    checked.findings = in_file_order(found.values())
    return checked


def _pinned(findings: list[Finding], lock: Lock | None) -> Iterator[Finding]:
    """R003 findings with the commit to paste, where the lock knows it."""
    for finding in findings:
        locked = lock.models.get(finding.where.split(".")[1]) if lock and finding.code == "R003" else None
        commit = locked.commit if locked else None
        yield replace(finding, fix=f"write `revision: {commit}`, as locked") if commit else finding


def _lock(checked: Checked) -> Iterator[Finding]:
    """Reads the lock into `checked`; findings about it."""
    entry, recipe = checked.entry, checked.document.recipe
    file = catalog.shown(entry.lock_file)
    try:
        checked.lock = catalog.load_lock(entry)
    except PinError as err:
        yield Finding("L001", level_of("L001"), file, 0, 0, "", err.what, err.next_step)
    if checked.lock is None or recipe is None:
        return
    for lane in checked.lock.resolution:
        reasons = (
            lockfile.drift(recipe, checked.lock, lane) if lane in recipe.lanes else ["the recipe has no such lane"]
        )
        if reasons:
            fix = f"recipectl lock {recipe.name} --sm {lane.removeprefix('sm')}"
            yield Finding("L002", level_of("L002"), file, 0, 0, f"lane {lane}", "; ".join(reasons), f"`{fix}`")


def _lanes(checked: Checked, lane_name: str | None) -> Iterator[Finding]:
    document, recipe, told = checked.document, checked.document.recipe, list[Finding]()
    if recipe is None:
        return
    for at, family, lane in rules.lanes(recipe):
        if lane_name is not None and family != lane_name:
            continue
        verdicts = speculative.check(recipe, family, lane, checked.lock)
        checked.verdicts["/".join(map(str, at[1:]))] = verdicts
        for verdict in verdicts:
            if (level := _LEVELS.get(verdict.verdict)) is None:
                continue
            level = "note" if verdict.known else level
            path = (*at, *verdict.where)
            finding = document.finding(verdict.code, path, verdict.message, verdict.fix, level=level)
            if at[0] == "variants":  # the line may be the lane's own, where the same may have been said already
                if finding in told:
                    continue
                finding = replace(finding, message=f"variant {at[-1]}: {finding.message}")
            told.append(finding)
    yield from told
