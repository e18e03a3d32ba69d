"""PROVENANCE.txt: the record of the training run, what was measured afterwards, and the sha256 of every file.

python3 provenance.py ROOT                    hash the files of ROOT/target and ROOT/drafter again
python3 provenance.py ROOT --served FILE      and replace the figures measured in the engine by FILE's text
"""

import argparse
import hashlib
from pathlib import Path

FOLDERS = ("target", "drafter")
NAME = "PROVENANCE.txt"
SECTIONS = ("TRAINING", "SERVED", "FILES")


def hashes(root: Path) -> str:
    paths = sorted(path for folder in FOLDERS for path in (root / folder).iterdir() if path.name != NAME)
    return "\n".join(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(root)}" for path in paths)


def read(path: Path) -> dict[str, str]:
    """The sections of a record by name."""
    sections: dict[str, list[str]] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        if line in SECTIONS:
            sections[line] = []
        elif sections:
            sections[list(sections)[-1]].append(line)
    return {name: "\n".join(lines).strip() for name, lines in sections.items()}


def write(root: Path, training: str, served: str) -> None:
    """The same record into both folders, because each may be copied without the other."""
    sections = dict(zip(SECTIONS, (training, served, hashes(root)), strict=True))
    text = "\n\n".join(f"{name}\n{body.strip()}" for name, body in sections.items()) + "\n"
    for folder in FOLDERS:
        (root / folder / NAME).write_text(text, encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description="Refresh PROVENANCE.txt.")
    parser.add_argument("root", type=Path)
    parser.add_argument("--served", type=Path, help="a text of figures measured in the engine")
    options = parser.parse_args()
    record = read(options.root / "drafter" / NAME)
    served = options.served.read_text(encoding="utf-8") if options.served else record["SERVED"]
    write(options.root, record["TRAINING"], served)


if __name__ == "__main__":
    main()
