"""What a run leaves on disk: run.json, raw chunks as JSONL, the scrapes of every block."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path

from recipectl.bench.acceptance import Scrape
from recipectl.bench.measure import Sent
from recipectl.bench.protocol import Protocol
from recipectl.bench.result import Block, Result, load
from recipectl.errors import UsageError
from recipectl.fsio import write_atomic

RESULT = "run.json"
CHUNKS = "chunks.jsonl"


class Files:
    """The folder of one run. Each finished block is on disk before the next begins."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        if (folder / RESULT).exists():
            raise UsageError("this folder already holds a bench result", on=str(folder), next_step="give another --out")

    def block(
        self, protocol: Protocol, block: Block, waves: Sequence[Sequence[Sent]], before: Scrape | None,
        after: Scrape | None,
    ) -> None:  # fmt: skip
        """Raw chunks and scrapes of one block."""
        self.folder.mkdir(parents=True, exist_ok=True)
        where = {"protocol": protocol.name, "phase": block.phase, "c": block.concurrency, "round": block.round}
        with (self.folder / CHUNKS).open("a") as out:
            for w, wave in enumerate(waves):
                for i, sent in enumerate(wave):
                    s = sent.stream
                    row = {**where, "wave": w, "stream": i, "prompt": sent.prompt.id, "t_request": s.t_request,
                           "chunks": [[c.t, c.n] for c in s.chunks], "t_end": s.t_end, "text": s.text,
                           "failure": s.failure}  # fmt: skip
                    out.write(json.dumps(row, ensure_ascii=False) + "\n")
        name = f"{protocol.name}-{block.phase}-c{block.concurrency}-r{block.round}"
        for edge, scrape in (("before", before), ("after", after)):
            if scrape is not None:  # the bytes are the evidence, not what was parsed from them
                write_atomic(self.folder / "scrapes" / f"{name}-{edge}.prom.gz", gzip.compress(scrape.text.encode()))

    def result(self, result: Result) -> None:
        """The result as a whole."""
        write_atomic(self.folder / RESULT, result.dump())


def read(path: Path) -> Result:
    """A result from its file or its folder. UsageError where there is none."""
    file = path / RESULT if path.is_dir() else path
    try:
        return load(file.read_text(), str(file))
    except FileNotFoundError:
        raise UsageError(
            f"there is no {RESULT} in this folder", on=str(path), next_step="give a result's folder"
        ) from None
    except (OSError, UnicodeDecodeError) as err:
        raise UsageError("the bench result cannot be read", on=str(file), seen=err) from err
