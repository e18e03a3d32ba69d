"""Images whose files were read once and found to be an overlay's. An engine names an image by its content, so what lies
under an id does not change, and reading ten files out of an image takes the engine most of a second."""

from __future__ import annotations

import contextlib
from pathlib import Path

from recipectl.fsio import remembered, write_json


class Known:
    """Image id -> input digest of the overlay whose files it holds, kept as one JSON file in the state directory.

    A damaged file is dropped, and one that cannot be written is not: it only ever saves time.
    """

    def __init__(self, state_dir: Path) -> None:
        self._path = state_dir / "images.json"
        self._digests = remembered(self._path)

    def holds(self, image: str, digest: str) -> bool:
        """Whether the image was found to hold the files of this overlay."""
        return self._digests.get(image) == digest

    def add(self, image: str, digest: str) -> None:
        """Remember it."""
        if not self.holds(image, digest):
            self._digests[image] = digest
            with contextlib.suppress(OSError):
                write_json(self._path, self._digests)
