"""From patched files to a build context: labels, Dockerfile, deterministic tar. PURE."""

from __future__ import annotations

import io
import posixpath
import tarfile
from collections.abc import Mapping

from recipectl.errors import RecipeError
from recipectl.images.overlay import Overlay
from recipectl.recipe.hygiene import looks_secret

# No weights in an image: licenses such as CC-BY-NC-ND forbid to repackage them, and they belong to the lock.
WEIGHT_SUFFIXES = (".safetensors", ".pt", ".pth", ".bin", ".ckpt", ".pkl", ".gguf", ".onnx", ".npz")


def tag(overlay: Overlay, family: str, digest: str) -> str:
    """The image's name: `recipectl/NAME:sm121-<12 hex of the input digest>`."""
    return f"recipectl/{overlay.name}:{family}-{digest.removeprefix('sha256:')[:12]}"


def labels(overlay: Overlay, base_ref: str, base_digest: str, digest: str) -> dict[str, str]:
    """All labels of the image; a reused image must carry every one of them unchanged."""
    m = overlay.manifest
    return {
        **m.labels,
        "org.opencontainers.image.title": m.name,
        "org.opencontainers.image.description": m.summary,
        "org.opencontainers.image.licenses": m.license,
        "org.opencontainers.image.base.name": base_ref,
        "org.opencontainers.image.base.digest": base_digest,
        "io.recipectl.overlay": m.name,
        "io.recipectl.overlay.digest": digest,
        "io.recipectl.sm": ",".join(sorted(m.families)),
    }


def dockerfile(overlay: Overlay, base_ref: str, base_digest: str, image_labels: Mapping[str, str]) -> str:
    """The Dockerfile as text: one FROM by digest, one layer of files, no RUN."""
    lines = [f"# recipectl overlay {overlay.name}", f"FROM {repository(base_ref)}@{base_digest}"]
    lines += [f"ARG {k}={quote(v)}" for k, v in sorted(overlay.build_args.items())]
    lines += [f"ENV {k}={quote(v)}" for k, v in sorted(overlay.env.items())]
    if overlay.steps or overlay.added:
        lines.append("ADD rootfs.tar /")
    lines += [f"LABEL {k}={quote(v)}" for k, v in sorted(image_labels.items())]
    return "\n".join(lines) + "\n"


def quote(value: str) -> str:
    """A value for ENV, ARG or LABEL: quoted, with nothing left for the builder to expand."""
    if "\n" in value or "\r" in value:
        raise RecipeError("a value of the overlay holds a line break", seen=repr(value)[:80])
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"').replace("$", "\\$") + '"'


def repository(ref: str) -> str:
    """An image reference without tag and digest."""
    ref = ref.split("@", maxsplit=1)[0]
    head, _, last = ref.rpartition("/")
    return f"{head}/{last.split(':')[0]}" if head else last.split(":")[0]


def context(overlay: Overlay, files: Mapping[str, bytes], dockerfile_text: str) -> bytes:
    """The build context as a tar: the same bytes from the same inputs, whatever user, umask or clock.

    RecipeError for weights or tokens in it.
    """
    site = overlay.manifest.base.site_packages or "/"
    for path, data in files.items():
        refuse_content(path, data)
    rootfs = _tar({posixpath.join(site, path).lstrip("/"): data for path, data in files.items()})
    return _tar({"Dockerfile": dockerfile_text.encode(), **({"rootfs.tar": rootfs} if files else {})})


def refuse_content(path: str, data: bytes) -> None:
    """RecipeError for what must never enter an image: weights and secrets."""
    if path.lower().endswith(WEIGHT_SUFFIXES):
        raise RecipeError(
            "weights do not go into an image", on=path, expected="source files only",
            next_step="models are mounted from verified folders; `no derivatives` licenses forbid to repackage them",
        )  # fmt: skip
    if looks_secret("", data.decode("utf-8", "replace")):
        raise RecipeError(
            "a file of the overlay holds what looks like a secret", on=path, next_step="remove it, and revoke it"
        )


def _tar(files: Mapping[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path in sorted(files):
            info = tarfile.TarInfo(path)
            info.size, info.mode, info.mtime = len(files[path]), 0o644, 0
            tar.addfile(info, io.BytesIO(files[path]))
    return out.getvalue()
