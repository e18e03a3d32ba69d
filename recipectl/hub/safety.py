"""What may lie in a model folder. Weights only as safetensors; code only if the recipe names it by sha256; nothing
that runs on being loaded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath

from recipectl.errors import PinError
from recipectl.fsio import sha256_file
from recipectl.hub.inspect import read_config
from recipectl.hub.ptfile import MAX_SIZE as MAX_PT
from recipectl.hub.ptfile import read_pt
from recipectl.hub.safetensors import check_index, parse_index, read_header
from recipectl.hub.store import safe_name, walk
from recipectl.recipe.model import Model

# Formats whose weights this program cannot check: pickles run code, GGUF and the others are not read here.
UNCHECKED = (
    ".bin",
    ".pkl",
    ".pickle",
    ".ckpt",
    ".pth",
    ".gguf",
    ".ggml",
    ".h5",
    ".msgpack",
    ".onnx",
    ".npz",
    ".joblib",
)
INDEX = "model.safetensors.index.json"
MASK_EMBEDDING = "mask_embedding.pt"


def check_names(names: Iterable[str], model: Model) -> None:
    """Refuse names that lead out of the folder, and formats that cannot be checked unless the recipe names their role.

    PinError lists all of them.
    """
    bad = []
    for name in names:
        safe_name(name)
        if PurePosixPath(name).suffix.lower() in UNCHECKED and name not in model.files.roles:
            bad.append(name)
    if bad:
        raise PinError(
            "weights in a format that cannot be checked", on=model.repo or model.path, details=sorted(bad),
            expected="safetensors",
            next_step="leave them out with files.allow, or name each under files.roles with its use",
        )  # fmt: skip


def python_files(names: Iterable[str]) -> list[str]:
    """Code among the files of a model."""
    return sorted(n for n in names if PurePosixPath(n).suffix in (".py", ".so", ".pyc", ".pyx"))


def check_remote_code(code: Mapping[str, str], config: Mapping[str, object], model: Model) -> None:
    """Code in the tree (name -> sha256) and `auto_map` in config.json only with the recipe's consent, file by file.

    PinError lists what was found, with the lines to put in the recipe once somebody has read the code.
    """
    allowed = model.remote_code.files if model.remote_code else {}
    bad = [f"{name}: sha256 {sha}" for name, sha in sorted(code.items()) if allowed.get(name) != sha]
    auto_map = config.get("auto_map")
    if isinstance(auto_map, dict) and not allowed:
        bad += [f"config.json auto_map: {key} -> {value}" for key, value in sorted(auto_map.items())]
    if bad:
        raise PinError(
            "the model brings code that the recipe does not allow", on=model.repo or model.path, details=bad,
            next_step="read the code, then name each file with its sha256 under remote_code.files in the recipe",
        )  # fmt: skip


def pt_files(names: Iterable[str]) -> list[str]:
    """The files of a model that the strict reader has to pass."""
    return sorted(n for n in names if PurePosixPath(n).suffix == ".pt")


def check_pt(raw: bytes, name: str, config: Mapping[str, object]) -> None:
    """A `.pt` file holds plain tensors only; a mask embedding is for the mask token of config.json. PinError.

    The engine dies on another token id, after the minutes that loading the target takes.
    """
    value = read_pt(raw, name)
    dflash = config.get("dflash_config")
    expected = (dflash if isinstance(dflash, dict) else config).get("mask_token_id")
    seen = value.get("mask_token_id", expected) if isinstance(value, dict) else expected
    if PurePosixPath(name).name == MASK_EMBEDDING and isinstance(seen, int) and seen != expected:
        raise PinError(
            "the mask embedding is for another token", on=name, seen=seen, expected=f"{expected} (config.json)"
        )


def check_folder(folder: Path, model: Model) -> None:
    """Everything above on a folder of real files, and the weights' headers against their index. PinError."""
    names = walk(folder)
    for name in names:
        if (folder / name).is_symlink() and not (folder / name).resolve().is_relative_to(folder.resolve()):
            raise PinError("a symlink leads out of the model's folder", on=name, seen=(folder / name).readlink())
        if (folder / name).is_symlink():
            raise PinError(
                "a symlink lies in the model's folder", on=name, seen=(folder / name).readlink(),
                expected="a real file",
                next_step=f"replace it: cp --remove-destination $(readlink -f {name}) {name}",
            )  # fmt: skip
        if not (folder / name).is_file():  # a pipe would be read for ever
            raise PinError(
                "the model's folder holds what is no file", on=name, expected="a real file", next_step="remove it"
            )
    check_names(names, model)
    code = {name: sha256_file(folder / name) for name in python_files(names)}
    config = read_config(folder / "config.json")
    check_remote_code(code, config, model)
    for name in pt_files(names):
        with (folder / name).open("rb") as handle:
            check_pt(handle.read(MAX_PT + 1), name, config)
    headers = {n: read_header(folder / n) for n in names if n.endswith(".safetensors")}
    if not headers and not model.files.roles and model.format != "dummy":  # dummy: the engine makes its own weights
        raise PinError("the model has no weights", on=str(folder), expected="*.safetensors")
    if INDEX in names:
        check_index(parse_index((folder / INDEX).read_bytes(), INDEX), headers, INDEX)
