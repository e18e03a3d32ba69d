"""The overlay manifest, `overlays/NAME/overlay.yaml`: what changes in which package, what must hold afterwards. PURE.

An overlay changes files of one installed Python package. Everything is named by sha256, and nothing is run to change
a file.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import Field, StringConstraints, ValidationError, model_validator

from recipectl.recipe import yamltree
from recipectl.recipe.base import Evidence, SchemaOne, Sha256, Slug, Source, Strict
from recipectl.recipe.families import FAMILIES
from recipectl.recipe.findings import Finding, in_file_order
from recipectl.recipe.hygiene import looks_secret
from recipectl.recipe.lane import Image
from recipectl.recipe.shape import from_pydantic

# Relative, and no part starts with a dot: neither `..` nor hidden files.
RelPath = Annotated[str, StringConstraints(pattern=r"^(?:[\w\-+][\w.\-+]*/)*[\w\-+][\w.\-+]*$")]
Capability = Annotated[str, StringConstraints(pattern=r"^\d{1,2}\.\d$")]
_NAME = re.compile(r"[A-Za-z_]\w*\Z", re.ASCII)
_LABEL = re.compile(r"[a-z0-9][a-z0-9.\-_/]*\Z", re.IGNORECASE | re.ASCII)
RESERVED_LABELS = ("io.recipectl.", "org.opencontainers.image.base.")


class Foreign(Strict):
    """A file of somebody else's repository. The overlay names it and contains none of it.

    What nobody has published is null: it stays unresolved and a build that needs it is refused.
    """

    repository: str = Field(pattern=r"^https://")
    commit: str | None = Field(default=None, pattern=r"^[0-9a-f]{40}$")
    path: RelPath
    sha256: Sha256 | None = None
    license: str | None = Field(description="SPDX expression of that repository; null: none stated")
    form: Literal["diff", "file", "script"] = Field(
        default="diff", description="file: replaces the target whole; script: changes files by running, never run here"
    )
    note: str | None = None


class Patch(Strict):
    """One change of one file of the package."""

    file: RelPath = Field(description="below site-packages, such as vllm/config/speculative.py")
    before: Sha256 | None = Field(default=None, description="null only for a file that a foreign diff creates, or open")
    after: Sha256 | None = None
    patch: RelPath | None = Field(default=None, description="unified diff in the overlay's folder")
    foreign: Foreign | None = None
    why: str = Field(min_length=8)

    @model_validator(mode="after")
    def _one_source(self) -> Patch:
        if (self.patch is None) == (self.foreign is None):
            raise ValueError("give exactly one of patch (a diff in this folder) or foreign (somebody else's file)")
        if self.patch is not None and (self.before is None or self.after is None):
            raise ValueError("a patch of our own needs before and after: `check overlays/NAME --tree DIR` prints them")
        return self


class AddedFile(Strict):
    """A file that the package does not have."""

    file: RelPath
    source: RelPath = Field(description="file in the overlay's folder")
    sha256: Sha256
    why: str = Field(min_length=8)


class VersionCheck(Strict):
    """The installed distribution has this version."""

    kind: Literal["version"]
    distribution: str
    version: str


class RegisteredCheck(Strict):
    """The engine's model registry knows these architectures."""

    kind: Literal["registered"]
    architectures: list[str] = Field(min_length=1)


class ArchCheck(Strict):
    """The image's torch covers each capability by code or PTX. An `a` build counts for its own capability alone."""

    kind: Literal["arch"]
    capabilities: list[Capability] = Field(min_length=1)


class KvGeometry(Strict):
    """One expectation about the engine's KV cache classes, computed by recipectl.geometry from the same numbers."""

    tensor: int = Field(ge=1)
    k: int = Field(ge=0)
    linear_heads: int
    linear_head_dim: int
    linear_kernel: int
    latent: int
    kv_bytes: Literal[1, 2]


class GeometryCheck(Strict):
    """The engine in the image computes the same state, block and page bytes as recipectl does."""

    kind: Literal["geometry"]
    cases: list[KvGeometry] = Field(min_length=1)


class ScriptCheck(Strict):
    """A Python program of the overlay; it must exit 0 and print `expect`."""

    kind: Literal["script"]
    source: RelPath
    expect: str
    why: str = Field(min_length=8)


Check = Annotated[VersionCheck | RegisteredCheck | ArchCheck | GeometryCheck | ScriptCheck, Field(discriminator="kind")]


class Base(Strict):
    """What the overlay is for: an image, a package version, or both (a package alone serves the process runtime)."""

    image: Image | None = None
    distribution: list[str] = Field(min_length=1, description="names under which the package is distributed")
    version: str
    site_packages: str | None = Field(
        default=None, pattern=r"^(?:/\.?[\w\-+][\w.\-+]*)+$", description="in the image, without `..`"
    )
    python: str = "python3"


class Manifest(Strict):
    """overlay.yaml."""

    schema_version: SchemaOne = Field(alias="schema")
    name: Slug
    summary: str = Field(min_length=8)
    license: str = Field(description="SPDX expression of what this folder holds")
    sources: list[Source] = Field(min_length=1)
    base: Base
    families: list[Literal["sm90", "sm100", "sm121", "cpu"]] = Field(min_length=1)
    capabilities: list[Capability] = Field(default=[], description="CUDA capabilities the overlay is for")
    include: list[Slug] = Field(default=[], description="overlays whose patches, files and checks come first")
    patches: list[Patch] = []
    files: list[AddedFile] = []
    env: dict[str, str] = {}
    build_args: dict[str, str] = {}
    checks: list[Check] = []
    check_timeout_s: int = Field(default=300, ge=1)
    labels: dict[str, str] = {}
    known: dict[Sha256, str] = Field(default={}, description="sha256 of other versions' files -> which version that is")
    evidence: list[Evidence] = []

    @model_validator(mode="after")
    def _coherent(self) -> Manifest:
        if self.base.image is not None and self.base.site_packages is None:
            raise ValueError("base.image needs base.site_packages: where the package lies in it")
        allowed = {f"{a}.{b}" for f in self.families for a, b in FAMILIES[f].capabilities}
        if wrong := [c for c in self.capabilities if c not in allowed]:
            raise ValueError(f"capabilities {', '.join(wrong)} do not belong to {', '.join(self.families)}")
        return self


def parse_text(text: str, name: str) -> tuple[Manifest | None, list[Finding]]:
    """The manifest and all findings, each at its line; None if one of them is an error. Never raises on any text."""
    tree, findings = yamltree.read(text, name)
    if not isinstance(tree.data, dict):
        if not findings:
            findings.append(
                Finding("P004", "error", name, 1, 1, "", "expected a mapping of keys", "start with schema: 1")
            )
        return None, findings

    def say(code: str, path: tuple[str | int, ...], message: str, fix: str) -> None:
        place = tree.place(path)
        findings.append(Finding(code, "error", name, *place, yamltree.dotted(path), message, fix))

    manifest: Manifest | None = None
    try:
        manifest = Manifest.model_validate(tree.data)
    except ValidationError as err:
        found = from_pydantic(err.errors(include_url=False), tree.data, tree, name, lambda p: p, root=Manifest)
        findings += [f for f in found if (f.line, f.column) not in {(g.line, g.column) for g in findings}]
    for section in ("env", "build_args", "labels"):
        values = tree.data.get(section)
        for key, value in values.items() if isinstance(values, dict) else ():
            if looks_secret(str(key), str(value)):
                say("P012", (section, key), f"`{key}` looks like a secret; everybody can read image history",
                    "remove it and revoke it; no secret is ever needed in a build")  # fmt: skip
            if section != "labels" and not _NAME.match(str(key)):
                say("P007", (section, key), f"`{key}` is not a variable name", "letters, digits and _")
            if section != "labels" and not str(value).isprintable():
                say("P007", (section, key), f"`{key}` holds a line break or a control character",
                    "one line of text; a block of YAML (>, |) ends with a line break, >- does not")  # fmt: skip
            if section == "labels" and not _LABEL.match(str(key)):
                say("P007", (section, key), f"`{key}` is not a label name", "letters, digits and . - _ /")
            if section == "labels" and str(key).startswith(RESERVED_LABELS):
                say("P014", (section, key), f"recipectl writes `{key}` itself", "remove it")
    findings = in_file_order(findings)
    return (None if any(f.level == "error" for f in findings) else manifest), findings
