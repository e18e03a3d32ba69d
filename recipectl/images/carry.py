"""An image carried from one engine to another: `save` here flows into `load` there, without a file or registry between.

A loaded image has no repository digest, so it cannot be asked for by the name in the lock. Its id is the digest of its
config, and its layers are digests of content: these say that it is the same image.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from recipectl.errors import EngineError, PinError
from recipectl.images.port import ContainerEngine, ImageInfo, ImageStore

ID_LENGTH = 12


def name_of(image: ImageInfo) -> str:
    """What a carried image is called there: a name keeps it from `docker image prune`, and says where it is from."""
    return f"recipectl/carried:{image.id.removeprefix('sha256:')[:ID_LENGTH]}"


def find(there: ImageStore, image: ImageInfo) -> ImageInfo | None:
    """The same image on another engine, however it came there. Its id differs between image stores: then a name leads
    to it, and the layers tell."""
    for ref in (image.id, *image.digests, *image.tags, name_of(image)):
        found = there.image(ref)
        if found is not None and found.layers == image.layers:
            return found
    return None


def carry(here: ImageStore, there: ContainerEngine, image: ImageInfo, moved: Callable[[int], None]) -> ImageInfo:
    """Bring an image of `here` to `there`; `moved` gets the bytes of each piece. EngineError if either engine fails,
    PinError if what arrived is not what was sent; no name is given before that is known."""
    if there.platform() != image.platform:
        raise EngineError("the image does not run on that machine's platform", on=name_of(image), seen=there.platform(),
                          expected=image.platform, next_step="name a host of the same kind")  # fmt: skip
    loaded = there.load(_counted(here.save(image.id), moved))
    found = there.image(loaded)
    if found is None or found.layers != image.layers:
        there.remove_image(loaded)
        raise PinError("the image that arrived is not the one that was sent", on=name_of(image),
                       seen=f"last layer {found.layers[-1:] if found else 'none'}", expected=f"{image.layers[-1:]}",
                       next_step="try again; if it stays so, look at the memory and the disk of that host")  # fmt: skip
    there.tag(found.id, name_of(image))
    return found


def _counted(pieces: Iterator[bytes], moved: Callable[[int], None]) -> Iterator[bytes]:
    for piece in pieces:
        yield piece
        moved(len(piece))
