"""The lock's codec, its digests and its drift: same inputs, same bytes; an edited byte never passes."""

from __future__ import annotations

import hashlib

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from recipectl.errors import PinError
from recipectl.lockfile import (
    Facts,
    Lock,
    LockedFile,
    LockedImage,
    LockedModel,
    LockedOverlay,
    diff,
    drift,
    dump,
    load,
    tree_digest,
)
from recipectl.recipe import catalog
from recipectl.settings import Settings

HEX = st.text("0123456789abcdef", min_size=64, max_size=64)
PATHS = st.from_regex(r"[a-z]{1,8}(/[a-z]{1,8})?\.(json|safetensors)", fullmatch=True)
FILES = st.dictionaries(PATHS, st.tuples(st.integers(0, 1 << 40), HEX), min_size=1, max_size=6)


def model(files: dict[str, tuple[int, str]], **more: object) -> LockedModel:
    locked = tuple(LockedFile(path=p, size=s, sha256=h) for p, (s, h) in sorted(files.items()))
    fields: dict[str, object] = {"role": "target", "repo": "org/name", "ref": "main", "commit": "a" * 40, **more}
    return LockedModel.model_validate(
        {**fields, "files": locked, "tree": tree_digest({f.path: f.sha256 for f in locked})}
    )


def lock(**models: LockedModel) -> Lock:
    return Lock(recipe="r", resolution={"cpu": "sha256:" + "0" * 64}, models=models)


@given(FILES, FILES)
def test_round_trip_and_the_same_bytes_in_any_order(
    a: dict[str, tuple[int, str]], b: dict[str, tuple[int, str]]
) -> None:
    facts = Facts(block_size=8, taps=(1, 3, 4), tensors={"conv": 32})
    one = lock(target=model(a), drafter=model(b, role="drafter", facts=facts))
    two = lock(drafter=model(dict(reversed(b.items())), role="drafter", facts=facts), target=model(a))
    text = dump(one)
    assert dump(two) == text
    assert load(text, "lock") == one


def test_tree_digest_is_sha256_over_sorted_sum_lines() -> None:
    a, b = "1" * 64, "2" * 64
    expected = hashlib.sha256(f"{a}  a.json\n{b}  b.json\n".encode()).hexdigest()
    assert tree_digest({"b.json": b, "a.json": a}) == f"sha256:{expected}"


def test_one_edited_byte_of_a_hash_is_refused_and_named() -> None:
    text = dump(lock(target=model({"w.safetensors": (10, "ab" * 32)})))
    with pytest.raises(PinError) as refused:
        load(text.replace("abab", "abac", 1), "recipe.lock.yaml")
    assert refused.value.exit_code == 4
    assert refused.value.on == "recipe.lock.yaml"
    assert "the files of target do not give its tree digest" in refused.value.what


def test_a_lock_that_lost_a_model_is_stale(settings: Settings) -> None:
    entry = catalog.find(settings, "tiny-dflash")
    recipe, whole = catalog.load(entry), catalog.load_lock(entry)
    assert whole is not None and drift(recipe, whole, "cpu") == []
    less = whole.model_copy(update={"models": {n: m for n, m in whole.models.items() if n != "drafter"}})
    assert drift(recipe, less, "cpu") == ["model drafter is not in the lock"]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("{", "not YAML"),
        ("[1]", "form of a lock"),
        ("", "form of a lock"),
        ("schema: 2026-13-01\n", "not YAML"),
        ("schema: 1\nrecipe: r\nresolution: {}\nmodles: {}\n", "form of a lock"),
        ("schema: 7\n", "newer recipectl"),
        ("schema: 1.0\nrecipe: r\nresolution: {}\n", "form of a lock"),
        ("schema: true\nrecipe: r\nresolution: {}\n", "form of a lock"),
    ],
)
def test_what_is_no_lock_is_refused(text: str, what: str) -> None:
    with pytest.raises(PinError, match=what):
        load(text, "x.lock.yaml")


def test_nothing_machine_bound_is_written() -> None:
    data = yaml.safe_load(dump(lock(target=model({"w.safetensors": (10, "ab" * 32)}))))
    assert set(data) == {"schema", "recipe", "resolution", "models", "images", "overlays"}


def test_diff_names_commit_license_and_files() -> None:
    old = lock(target=model({"a.json": (1, "1" * 64), "b.json": (1, "2" * 64)}, license="MIT"))
    new = lock(
        target=model({"a.json": (1, "3" * 64), "c.json": (1, "4" * 64)}, license="CC-BY-NC-ND-4.0", commit="b" * 40)
    )
    assert diff(old, new) == [
        f"~ target: commit {'a' * 40} -> {'b' * 40}",
        "~ target: LICENSE CHANGED MIT -> CC-BY-NC-ND-4.0",
        f"~ target/a.json: {'1' * 12} -> {'3' * 12}",
        f"~ target/b.json: {'2' * 12} -> absent",
        f"~ target/c.json: absent -> {'4' * 12}",
    ]
    assert diff(None, old) == [f"+ target: org/name@{'a' * 40}, 2 files, 2 bytes, license MIT"]


def test_diff_shows_a_moved_image() -> None:
    a, b = (LockedImage(ref="r/i:t", digest="sha256:" + c * 64) for c in "12")
    base = {"recipe": "r", "resolution": {}}
    without, before, after = Lock(**base), Lock(**base, images={"cpu": a}), Lock(**base, images={"cpu": b})
    assert diff(before, after) == [f"~ image cpu: digest {a.digest} -> {b.digest}"]
    assert diff(without, before) == [f"+ image cpu: {a.digest}"]
    assert diff(before, without) == ["- image cpu: removed"]


def test_diff_shows_what_changed_in_an_overlay() -> None:
    def with_patch(digest: str, after: str) -> Lock:
        patches = {"vllm/a.py": ("1" * 64, "2" * 64), "vllm/b.py": ("3" * 64, after * 64)}
        made = LockedOverlay(input_digest="sha256:" + digest * 64, patches=patches)
        return Lock(recipe="r", resolution={}, overlays={"o": made})

    assert diff(with_patch("a", "4"), with_patch("b", "5")) == [
        f"~ overlay o: input_digest sha256:{'a' * 64} -> sha256:{'b' * 64}",
        f"~ overlay o: patches.vllm/b.py {'3' * 64} to {'4' * 64} -> {'3' * 64} to {'5' * 64}",
    ]
    assert diff(None, with_patch("a", "4")) == [f"+ overlay o: sha256:{'a' * 64}"]
