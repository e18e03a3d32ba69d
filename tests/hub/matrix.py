"""The fault matrix: what a hub served, and what recipectl said. Data for test_matrix.py; printed by

python -m tests.hub.matrix
"""

# ruff: noqa: E501 - a table: one fault a row reads better than six short lines
from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.hub import models
from tests.hub.pair import NC_ND, Pair, make_pair
from tests.hub.testhub import TestHub

SHARD = "model-00001-of-00002.safetensors"
BODY = rf"/{SHARD}"  # on either origin


@dataclass(frozen=True)
class Case:
    """One fault: how it is set up, which verb meets it, how that must end, what the message must say.

    `whole`: the models must be complete and right afterwards. `locked`: a good lock is made before the fault.
    """

    name: str
    served: str
    setup: Callable[[Pair], None]
    code: int
    said: tuple[str, ...]
    whole: bool = False
    locked: bool = True
    env: tuple[tuple[str, str], ...] = ()
    verb: tuple[str, ...] = ("pull", "pair", "--sm", "cpu", "--accept-license", NC_ND)


def _fault(kind: str, path: str = BODY, **kwargs: object) -> Callable[[Pair], None]:
    def setup(pair: Pair) -> None:
        pair.hub.fault(kind, path, **kwargs)  # type: ignore[arg-type]

    return setup


def _gate(pair: Pair) -> None:
    pair.hub.repos["acme/Drafter"].gated = True


def _gone(pair: Pair) -> None:
    del pair.hub.repos["acme/Target"]


def _rewrite(**kwargs: str) -> Callable[[Pair], None]:
    return lambda pair: pair.write(**kwargs)


def _commit(which: str, change: dict[str, bytes | None], **write: str) -> Callable[[Pair], None]:
    """A new commit of one repository with files changed (None: removed), and a recipe at it."""

    def setup(pair: Pair) -> None:
        repo = pair.hub.repos[f"acme/{which}"]
        files = {**repo.commits[repo.refs["main"]]}
        for name, body in change.items():
            if body is None:
                del files[name]
            else:
                files[name] = body
        repo.commit(files)
        pair.write(**write)

    return setup


def _page(pair: Pair) -> None:
    pair.hub.page = 2


def _short_weights() -> bytes:
    return models.drafter()["model.safetensors"][:-2]


def _index(**weights: str) -> bytes:
    return json.dumps({"metadata": {}, "weight_map": weights}).encode()


CONFIG = json.dumps({**models.DRAFTER_CONFIG, "auto_map": {"AutoModel": "modeling_x.Model"}}).encode()
OTHER_BLOCK = json.dumps({**models.DRAFTER_CONFIG, "dflash_config": {"block_size": 16}}).encode()
ROLES = "    files:\n      required: [weights.bin]\n"
PT = "    files:\n      required: [mask_embedding.pt]\n"
DATA = Path(__file__).parents[1] / "data" / "pt"

CASES = [
    # --- bodies -----------------------------------------------------------------------------------------------------
    Case("cut", "a body cut after 10000 bytes, once", _fault("cut", at=10000, times=1), 0, ("again in",), whole=True),
    Case("cut for ever", "every body cut after 0 bytes", _fault("cut", at=0), 6, ("connection to the hub broke", "goes on where it stopped")),
    Case("stall", "a body silent after 10000 bytes, once", _fault("stall", at=10000, times=1), 0, ("again in",), whole=True),
    Case("flip once", "one byte flipped, same size, once", _fault("flip", f"^/acme/Target/[0-9a-f]+/{SHARD}", at=20000, times=1),
         0, ("sha256", "kept as"), whole=True),
    Case("flip always", "one byte flipped, same size, always", _fault("flip", f"^/acme/Target/[0-9a-f]+/{SHARD}", at=20000),
         4, ("other bytes than the lock names, twice", "expected: sha256", "quarantine")),
    Case("git file flipped", "config.json with a byte flipped, always", _fault("flip", r"config\.json", at=3),
         4, ("config.json", "twice")),
    Case("wrong size", "a body that claims 5 bytes more", _fault("size", at=5), 4, ("another size than the lock names",)),
    Case("wrong commit", "X-Repo-Commit of another commit", _fault("commit"), 6, ("another commit", "ffffffff")),
    Case("no headers", "no X-Repo-Commit, ETag, X-Linked-*", _fault("drop-headers", ".*"), 0, ("as locked",), whole=True),
    Case("no ranges", "a cut, then 200 to the Range request", lambda p: (
        _fault("cut", at=10000, times=1)(p), _fault("ignore-range")(p))[0], 0, ("again in",), whole=True),
    Case("other range", "a cut, then another range than asked for", lambda p: (
        _fault("cut", at=10000, times=1)(p), _fault("wrong-range")(p))[0], 6, ("answers with another range",)),
    Case("second origin", "LFS bodies redirected to another port", _fault("pause", "never"), 0, ("as locked",), whole=True,
         env=(("HF_TOKEN", "hf_reader_token_1234"),)),
    # --- answers ----------------------------------------------------------------------------------------------------
    Case("401 gated", "401 GatedRepo without a token", _gate, 6,
         ("acme/Drafter is gated", NC_ND.lower(), "ask for access", "HF_TOKEN"), locked=False),
    Case("403 gated", "403 GatedRepo with a token", _gate, 6,
         ("acme/Drafter is gated", "has no access"), locked=False, env=(("HF_TOKEN", "hf_stranger_token_99"),)),
    Case("403 at the body", "403 GatedRepo, access lost after the lock", _gate, 6, ("acme/Drafter is gated", f"license: {NC_ND}"),
         env=(("HF_TOKEN", "hf_stranger_token_99"),)),
    Case("404 repository", "RepoNotFound", _gone, 6, ("acme/Target does not exist, or is private",), locked=False),
    Case("404 revision", "RevisionNotFound", _rewrite(target_ref="ab" * 20), 6, ("has no revision",), locked=False),
    Case("404 file", "EntryNotFound at a body", _fault("status", "/resolve/.*tokenizer", status=404, code="EntryNotFound"), 6,
         ("has no file tokenizer.json",)),
    Case("429", "429 with Retry-After 1, once", _fault("status", status=429, retry_after="1", times=1), 0, ("again in 1 s",),
         whole=True),
    Case("429 for ever", "429 always", _fault("status", status=429, retry_after="1"), 6, ("limits the rate", "retry after 1 s")),
    Case("500", "500 once", _fault("status", status=500, times=1), 0, ("again in",), whole=True),
    Case("503 for ever", "503 always", _fault("status", ".*", status=503), 6, ("the hub is failing", "HTTP 503")),
    Case("down", "nobody listens", lambda p: p.env.update(HF_ENDPOINT="http://127.0.0.1:9"), 6, ("cannot be reached",)),
    Case("down at lock", "nobody listens", lambda p: p.env.update(HF_ENDPOINT="http://127.0.0.1:9"), 6, ("cannot be reached",),
         locked=False),
    Case("no hub", "JSON that is no hub's", _fault("garbage", "/api/"), 6, ("the answer is not a hub's", "check HF_ENDPOINT"),
         locked=False),
    Case("paging", "the listing in pages of 2", _page, 0, ("as locked",), whole=True, locked=False),
    # --- names ------------------------------------------------------------------------------------------------------
    Case("traversal", "../../evil.json in the listing", _commit("Drafter", {"../../evil.json": b"{}"}), 4,
         ("lead out of the model's folder", "../../evil.json"), locked=False),
    Case("absolute", "/etc/evil.json in the listing", _commit("Drafter", {"/etc/evil.json": b"{}"}), 4,
         ("lead out of the model's folder",), locked=False),
    # --- contents ---------------------------------------------------------------------------------------------------
    Case("cut weights", "a safetensors file 2 bytes short of its header", _commit("Drafter", {"model.safetensors": _short_weights()}),
         4, ("does not have the size that its tensors need",), locked=False),
    Case("wrong index", "an index that names another file", _commit("Target", {"model.safetensors.index.json": _index(x="y")}),
         4, ("index and the weight files disagree",), locked=False),
    Case("wrong counts", "35 tensors where 3 selector and 32 conv are expected",
         _commit("Drafter", {"model.safetensors": models.safetensors({"fc.weight": (8, 24)})}), 4,
         ("*selector*: the recipe expects 3, found 0", "*conv*: the recipe expects 32, found 0"), locked=False),
    Case("wrong block", "a drafter with another block size", _commit("Drafter", {"config.json": OTHER_BLOCK}), 4,
         ("block_size: the recipe expects 8, the model says 16",), locked=False),
    Case("auto_map", "auto_map in config.json", _commit("Drafter", {"config.json": CONFIG}), 4,
         ("brings code that the recipe does not allow", "modeling_x.Model"), locked=False),
    Case("python file", "a .py file that a pattern asks for",
         _commit("Drafter", {"modeling_x.py": b"import os\n"}, extra='    files:\n      allow: ["*"]\n'), 4,
         ("modeling_x.py: sha256",), locked=False),
    Case("pickled weights", "weights.bin, required without a role", _commit("Drafter", {"weights.bin": b"\x80\x02."}, extra=ROLES),
         4, ("format that cannot be checked", "weights.bin"), locked=False),
    Case("legacy .pt", "mask_embedding.pt in torch's legacy format",
         _commit("Drafter", {"mask_embedding.pt": (DATA / "legacy.pt").read_bytes()}, extra=PT), 4,
         ("is not a plain tensor file",), locked=False),
    Case("missing mask", "no mask_embedding.pt where it is required", _rewrite(extra=PT), 4,
         ("mask_embedding.pt: required, not there",), locked=False),
    Case("published hash", "weights with another sha256 than published",
         _rewrite(extra="    files:\n      sha256: {model.safetensors: deadbeef}\n"), 4,
         ("published as deadbeef, found",), locked=False),
    # --- licenses ---------------------------------------------------------------------------------------------------
    Case("other license", "a card with another license than the recipe's", _commit("Target", {"README.md": models.card("cc-by-nc-4.0")}),
         5, ("another license than the recipe", "CC-BY-NC-4.0"), locked=False),
    Case("not accepted", "a CC-BY-NC-ND drafter", _fault("pause", "never"), 5,
         ("its acceptance is not on record", f"--accept-license {NC_ND}"), verb=("pull", "pair", "--sm", "cpu")),
    Case("commercial use", "a CC-BY-NC-ND drafter", _fault("pause", "never"), 5,
         ("may not be used commercially", "use the recipe tiny-dflash"), env=(("RECIPECTL_USE", "commercial"),)),
]  # fmt: skip


@dataclass(frozen=True)
class Outcome:
    """How a case ended."""

    code: int
    text: str
    whole: bool


def play(case: Case, pair: Pair) -> Outcome:
    """Set a case up and run its verb as a user would."""
    if case.locked:
        locked = pair.run("lock", "pair")
        assert locked.returncode == 0, locked.stderr
    case.setup(pair)
    done = pair.run(*case.verb, **dict(case.env))
    whole = all(pair.files(repo) == pair.wanted(repo) for repo in (pair.target, pair.drafter))
    return Outcome(done.returncode, done.stdout + done.stderr, whole)


def main() -> None:
    """Print the matrix as Markdown: one row a fault, with the first line of the error or the notice."""
    print("| Fault | What was served | Exit | What recipectl said |\n|---|---|---|---|")
    for case in CASES:
        with TestHub() as hub, tempfile.TemporaryDirectory() as folder:
            outcome = play(case, make_pair(hub, Path(folder), dict(os.environ)))
        lines = [x for x in outcome.text.splitlines() if x.startswith("error[") or "again in" in x or "kept as" in x]
        said = lines[-1] if lines else "models as locked"
        for secret in (hub.endpoint, hub.cdn, folder):
            said = said.replace(secret, "…")
        print(f"| {case.name} | {case.served} | {outcome.code} | {said.replace('|', '/')} |")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
