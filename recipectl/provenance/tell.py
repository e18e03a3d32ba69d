"""Notes in the forms that people and other files need: lines, Markdown, NOTICE, a block for receipts, labels. PURE."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from recipectl.images.overlay import Overlay
from recipectl.licenses import canonical
from recipectl.lockfile import LockedImage
from recipectl.provenance.gather import Notes, Part, of_overlay
from recipectl.recipe.base import Note, Source

LABEL = "io.recipectl"
MODELS = ("target", "drafter")
_TOLD = (*MODELS, "image", "patch")
# For a server that was given by its address.
UNKNOWN = {
    "unknown": "given by URL: which models answer there, and under which licenses, recipectl cannot know; "
    "that the licenses permit this use is yours to see to"
}


def lines(notes: Notes) -> Iterator[str]:
    """For a terminal."""
    yield f"{notes.recipe}: {notes.summary}"
    yield ""
    yield "used here"
    for part in notes.parts:
        yield f"  {part.kind.ljust(7)} {_title(part)}"
        yield f"          license {part.license or 'NOT STATED'} ({part.license_from}), for {', '.join(part.used_by)}"
        yield from (f"          - {text}" for text in (*part.obligations, *part.remarks))
    if notes.alternative:
        yield f"  free of these restrictions: recipe {notes.alternative}"
    yield from _section("credits", [f"{c.who}: {c.what}" for c in notes.credits])
    yield from _section("amendments", [_note(n) for n in notes.amendments])
    yield from _section("caveats", [_note(n) for n in notes.caveats])
    yield from _section("related", [_note(n) for n in notes.related])
    yield from _section("sources", [_source(s) for s in notes.sources])
    yield from _section(
        f"evidence: {_counts(notes)}; what does not stand or is open:",
        [f"{e.status} {where}: {e.source}" + (f", {e.note}" if e.note else "") for where, e in notes.open],
    )


def markdown(notes: Notes) -> str:
    """For a model card, a report or an issue."""
    out = [f"# Notes of {notes.recipe}", "", notes.summary, "", "## What is used", ""]
    out += ["| what | which | version | license | for |", "|---|---|---|---|---|"]
    for p in notes.parts:
        cells = (p.kind, p.origin, p.version or "not pinned", p.license or "**not stated**", ", ".join(p.used_by))
        out.append("| " + " | ".join(c.replace("|", "\\|") for c in cells) + " |")
    out += ["", "## What the licenses ask for", ""]
    for p in notes.parts:
        if asked := [*p.obligations, *p.remarks]:
            out += [f"- **{p.origin}** ({p.license or 'no license stated'})", *(f"  - {text}" for text in asked)]
    if notes.alternative:
        out += ["", f"A recipe free of these restrictions: `{notes.alternative}`."]
    out += _list("Credits", [f"{c.who}: {c.what}" + (f" ({c.source})" if c.source else "") for c in notes.credits])
    out += _list("Amendments", [_note(n) for n in notes.amendments])
    out += _list("Caveats", [_note(n) for n in notes.caveats])
    out += _list("Related", [_note(n) for n in notes.related])
    out += _list("Sources", [_source(s) for s in notes.sources])
    open_ = [f"{e.status}, `{where}`: {e.source}" + (f", {e.note}" if e.note else "") for where, e in notes.open]
    out += ["", "## Evidence", "", f"{_counts(notes)}. What is open or does not stand:", "", *(f"- {x}" for x in open_)]
    return "\n".join(out) + "\n"


def notice(notes: Notes) -> str:
    """A NOTICE file: what is used, by whom, under which license. Plain text, as such files are read."""
    out = [f"{notes.recipe}", "=" * len(notes.recipe), "", "This deployment uses the following works."]
    for p in notes.parts:
        out += ["", _title(p), f"  License: {p.license or 'not stated'}"]
        out += [f"  {text[0].upper()}{text[1:]}." for text in p.obligations]
    out += ["", "Credits", "-------", *(f"{c.who}: {c.what}." for c in notes.credits)]
    return "\n".join(out) + "\n"


def block(notes: Notes) -> dict[str, Any]:
    """The notes inside receipts, bench results and `--json`: enough to repeat and to give credit."""
    return {
        "recipe": notes.recipe,
        "parts": [_part_json(p) for p in notes.parts],
        "credits": [c.model_dump(mode="json", exclude_none=True) for c in notes.credits],
        "amendments": [n.model_dump(mode="json", exclude_none=True) for n in notes.amendments],
        "caveats": [n.model_dump(mode="json", exclude_none=True) for n in notes.caveats],
        "evidence": dict(notes.evidence),
    }


def document(notes: Notes) -> dict[str, Any]:
    """Everything, for `notes --format json`."""
    return {
        **block(notes),
        "summary": notes.summary,
        "alternative": notes.alternative,
        "related": [n.model_dump(mode="json", exclude_none=True) for n in notes.related],
        "sources": [s.model_dump(mode="json") for s in notes.sources],
        "open": [{"where": w, **e.model_dump(mode="json", exclude_none=True)} for w, e in notes.open],
    }


def labels(overlay: Overlay, base: LockedImage | None) -> dict[str, str]:
    """Labels for an overlay's image: what is inside, from whom, under which licenses.

    Nothing of a recipe, since recipes share the image; nothing of weights, since they are never inside.
    """
    parts = [p for p in of_overlay(overlay, None, base) if p.kind != "overlay"]
    whom = dict.fromkeys(s.where for s in overlay.manifest.sources)
    inside = [f"overlay {overlay.name} ({canonical(overlay.manifest.license)})"]
    inside += [f"{p.kind} {_title(p)} ({p.license or 'NO LICENSE STATED'})" for p in parts]
    return {f"{LABEL}.contents": "; ".join(inside), f"{LABEL}.sources": "; ".join(whom), f"{LABEL}.weights": "none"}


def summary(told: Mapping[str, Any]) -> list[str]:
    """A few lines under a report, from a `block`: licenses with what they forbid, whom to thank, what was amended, and
    in what the server departed from its recipe."""
    if unknown := told.get("unknown"):
        return [str(unknown)]
    parts = told.get("parts", [])
    out = [f"{p['kind']} {p['origin']}: {p['license'] or 'NO LICENSE STATED'}" for p in parts if p["kind"] in _TOLD]
    out += list(dict.fromkeys(x for p in parts if p["kind"] in MODELS for x in p["obligations"] if x.startswith("no")))
    out += [f"amended: {a['text']}" for a in told.get("amendments", [])]
    out += [f"departs from the recipe: {d}" for d in told.get("departures", [])]
    if credits_ := told.get("credits"):
        out.append("credits: " + "; ".join(c["who"] for c in credits_))
    return out


def _part_json(part: Part) -> dict[str, Any]:
    return {
        "kind": part.kind, "name": part.name, "origin": part.origin, "version": part.version, "license": part.license,
        "license_from": part.license_from, "used_by": list(part.used_by), "obligations": list(part.obligations),
        "remarks": list(part.remarks),
    }  # fmt: skip


def _title(part: Part) -> str:
    return part.origin + (f"@{part.version}" if part.version else "")


def _note(note: Note) -> str:
    when = f"{note.date}, " if note.date else ""
    status = "" if note.status == "published" else f"{note.status}, "
    return f"{note.text} ({status}{when}{note.source})"


def _source(source: Source) -> str:
    when = f", {source.date}" if source.date else ""
    return f"{source.title}: {source.where}{when}, license {source.license or 'not stated'}"


def _counts(notes: Notes) -> str:
    return ", ".join(f"{n} {status}" for status, n in notes.evidence.items()) or "none"


def _section(title: str, items: list[str]) -> Iterator[str]:
    if items:
        yield ""
        yield title
        yield from (f"  - {item}" for item in items)


def _list(title: str, items: list[str]) -> list[str]:
    return ["", f"## {title}", "", *(f"- {item}" for item in items)] if items else []
