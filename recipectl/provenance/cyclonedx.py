"""Notes as a CycloneDX 1.6 bill of materials (https://cyclonedx.org/docs/1.6/json/). PURE.

Models are `machine-learning-model` components with the hashes of their locked files, images are `container`. The same
recipe and lock give the same document everywhere: no timestamp, and a serial number made from the content.
"""

from __future__ import annotations

import datetime as dt
import json
import uuid
from typing import Any
from urllib.parse import quote

from recipectl import __version__
from recipectl.provenance.gather import Notes, Part

SPEC = "1.6"
TYPES = {
    "recipe": "application",
    "target": "machine-learning-model",
    "drafter": "machine-learning-model",
    "image": "container",
    "overlay": "library",
    "patch": "file",
    "file": "file",
}
_NAMESPACE = uuid.uuid5(uuid.NAMESPACE_URL, "https://recipectl.dev/sbom")


def bom(notes: Notes, hub: str = "https://huggingface.co") -> dict[str, Any]:
    """The document. `hub` is the endpoint that the models' pages are on."""
    root, *rest = notes.parts
    body = {
        "metadata": {
            "component": {**_component(root, hub), "description": notes.summary},
            "tools": {"components": [{"type": "application", "name": "recipectl", "version": __version__}]},
            "properties": [
                {"name": f"recipectl:evidence:{status}", "value": str(n)} for status, n in notes.evidence.items()
            ],
        },
        "components": [_component(p, hub) for p in rest],
        "dependencies": [
            {"ref": _ref(root), "dependsOn": [_ref(p) for p in rest]},
            *({"ref": _ref(p), "dependsOn": []} for p in rest),
        ],
        "annotations": _annotations(notes, _ref(root)),
    }
    serial = uuid.uuid5(_NAMESPACE, json.dumps(body, sort_keys=True))
    head = {"bomFormat": "CycloneDX", "specVersion": SPEC, "serialNumber": f"urn:uuid:{serial}", "version": 1}
    return {**head, **body}


def _ref(part: Part) -> str:
    return f"{part.kind}:{part.name}"


def _component(part: Part, hub: str) -> dict[str, Any]:
    out: dict[str, Any] = {"type": TYPES[part.kind], "bom-ref": _ref(part), "name": part.origin}
    if part.version:
        out["version"] = part.version
    # What is not stated has to be said: an absent field reads as nobody having looked.
    licenses = [{"expression": part.license}] if part.license else [{"license": {"name": "NOASSERTION"}}]
    out["licenses"] = licenses
    if purl := _purl(part):
        out["purl"] = purl
    if part.kind in ("target", "drafter") and not part.origin.startswith("recipes/"):
        out["externalReferences"] = [{"type": "distribution", "url": f"{hub}/{part.origin}"}]
    whole = [f for f in part.sha256.items() if len(f[1]) == 64]
    if whole:
        out["components"] = [
            {"type": "file", "bom-ref": f"{_ref(part)}/{path}", "name": path,
             "hashes": [{"alg": "SHA-256", "content": digest}]}
            for path, digest in sorted(whole)
        ]  # fmt: skip
    told = [("used-by", place) for place in part.used_by]
    told += [("obligation", text) for text in part.obligations]
    told += [("remark", text) for text in part.remarks]
    told += [("sha256-prefix", f"{path} {digest}") for path, digest in part.sha256.items() if len(digest) < 64]
    out["properties"] = [{"name": f"recipectl:{name}", "value": value} for name, value in told]
    return out


def _purl(part: Part) -> str | None:
    """Package URLs exist for hub models (pkg:huggingface) and images (pkg:oci, by digest)."""
    if (
        part.kind in ("target", "drafter")
        and "/" in part.origin
        and part.version
        and not part.origin.startswith("recipes/")
    ):
        return f"pkg:huggingface/{part.origin}@{part.version}"
    if part.kind == "image" and part.version:
        repository = part.origin.rsplit("@", 1)[0]
        path = repository.rsplit(":", 1)[0] if ":" in repository.rsplit("/", 1)[-1] else repository
        name = path.rsplit("/", 1)[-1]
        return f"pkg:oci/{name}@{quote(part.version, safe='')}?repository_url={quote(path, safe='/')}"
    return None


def _annotations(notes: Notes, subject: str) -> list[dict[str, Any]]:
    """Credits, caveats and amendments, each by the one who said it; CycloneDX has no other place for them."""
    told: list[tuple[str, str, dt.date | None]] = [
        (c.source or "recipe", f"credit: {c.who}: {c.what}", None) for c in notes.credits
    ]
    for kind, items in (("amendment", notes.amendments), ("caveat", notes.caveats)):
        told += [(n.source, f"{kind} ({n.status}): {n.text}", n.date) for n in items]
    # The format demands a time; where a source gives no date, the start of the epoch says that it is not known.
    return [
        {
            "subjects": [subject],
            "annotator": {"organization": {"name": who}},
            "timestamp": f"{when or '1970-01-01'}T00:00:00Z",
            "text": text,
        }
        for who, text, when in told
    ]
