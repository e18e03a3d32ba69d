"""What others claim about a model, held against what was found: published sha256, expected facts, the license."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from recipectl.errors import LicenseError, PinError
from recipectl.licenses import canonical
from recipectl.lockfile import Facts, LockedModel
from recipectl.recipe.model import Model


def check_published(name: str, model: Model, found: Mapping[str, str]) -> None:
    """Required files are there, and published sha256 (or prefixes of one) agree. PinError lists every difference."""
    wrong = [f"{path}: required, not there" for path in model.files.required if path not in found]
    for path, published in model.files.sha256.items():
        if path not in found:
            wrong.append(f"{path}: published as {published}, not there")
        elif not found[path].startswith(published):
            wrong.append(f"{path}: published as {published}, found {found[path]}")
    if wrong:
        raise PinError(
            f"model {name} is not what was published", on=model.repo or model.path, details=wrong,
            next_step="find out which of the two is right; do not serve it until you know",
        )  # fmt: skip


def check_expected(name: str, model: Model, found: Facts) -> None:
    """What the recipe expects holds in the model's own config and headers. PinError lists every difference."""
    wrong = []
    for key, expected in model.expect.model_dump(exclude_none=True, exclude={"tensors", "kv"}).items():
        value = getattr(found, key)
        seen = list(value) if isinstance(value, tuple) else value
        if seen != expected:
            wrong.append(f"{key}: the recipe expects {expected}, the model says {seen}")
    wrong += [f"kv.{k}: the recipe expects {v}, the model says {found.kv.get(k)}" for k, v in model.expect.kv.items()
              if found.kv.get(k) != v]  # fmt: skip
    for part, expected in model.expect.tensors.items():
        if found.tensors.get(part) != expected:
            wrong.append(
                f"tensors named *{part}*: the recipe expects {expected}, found {found.tensors.get(part, 'none')}"
            )
    if wrong:
        raise PinError(
            f"model {name} is not what the recipe expects", on=model.repo or model.path, details=wrong,
            next_step="mend `expect` in the recipe if the model is right",
        )  # fmt: skip


def check_license(
    name: str, model: Model, card: str | None, commit: str, old: LockedModel | None, accept: Iterable[str]
) -> None:
    """The card's license at this commit is the recipe's, and the one that was locked before, unless the new one is
    accepted by name. LicenseError otherwise."""
    if card in {canonical(a) for a in accept}:
        return
    on = f"{model.repo}@{commit}"
    if old is not None and old.license is not None and old.license != card and old.commit != commit:
        raise LicenseError(
            f"the license of {name} changed", on=on, seen=card or "none stated",
            expected=f"{old.license}, as at {old.commit}",
            next_step=f"read the new terms; `recipectl lock --accept-license {card}` goes on, a fixed `revision` stays",
        )  # fmt: skip
    if model.license is not None and card is not None and canonical(model.license) != card:
        raise LicenseError(
            f"the card of {name} states another license than the recipe", on=on, seen=card, expected=model.license,
            next_step=f"set `license: {card}` under models.{name} if that is right, then lock again",
        )  # fmt: skip
