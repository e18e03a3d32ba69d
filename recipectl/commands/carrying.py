"""The head's image on another host: found there, or carried there if the user said so."""

from __future__ import annotations

import time

from recipectl.commands.placing import Held
from recipectl.console import Console
from recipectl.errors import EngineError, PinError
from recipectl.images import carry
from recipectl.images.port import ContainerEngine
from recipectl.serving.hosts import Host
from recipectl.transfers import size_text


def required(head: Held, host: Host, engine: ContainerEngine) -> Held:
    """The head's image on another host. PinError if it is not there: one server runs on one image."""
    found = _found(head, host, engine)
    if found is None:
        raise PinError(
            f"{host.name} does not have the image of {head.host.name}", on=head.name,
            expected=f"one image everywhere, layers up to {head.image.top}",
            next_step=f"recipectl serve --carry-image copies it there ({size_text(head.image.size)}), or pull it there",
        )  # fmt: skip
    return found


def carried(console: Console, head: Held, host: Host, engine: ContainerEngine) -> Held:
    """The head's image on another host, copied there if it is missing. EngineError or PinError if that fails."""
    if found := _found(head, host, engine):
        return found
    begun, moved = time.monotonic(), 0
    with console.progress(f"carrying the image to {host.name}", total=head.image.size, unit="B") as bar:

        def count(size: int) -> None:
            nonlocal moved
            moved += size
            bar.advance(size)

        try:
            image = carry.carry(head.engine, engine, head.image, count)
        except EngineError as err:  # which names an engine's socket, and a far one's is a temporary file here
            raise EngineError(f"the image was not carried to {host.name}: {err.what}", on=head.name, seen=err.seen,
                              expected=err.expected, details=err.details, next_step=err.next_step) from err  # fmt: skip
    console.notice(f"image carried to {host.name}: {size_text(moved)} in {time.monotonic() - begun:.0f} s, {image.id}")
    return Held(host, engine, image.id, image)


def _found(head: Held, host: Host, engine: ContainerEngine) -> Held | None:
    image = carry.find(engine, head.image)
    if image is None:
        return None
    return Held(host, engine, head.name if head.name in image.digests else image.id, image)
