"""What recipectl needs of a container engine. `images/docker.py` is the one implementation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

# done bytes, total bytes (0: not known), one line of text
Progress = Callable[[int, int, str], None]


@dataclass(frozen=True)
class Resolved:
    """What a tag means now: the digest of the index or manifest, and the platforms under it (`linux/arm64`, ...)."""

    digest: str
    platforms: tuple[str, ...]


@dataclass(frozen=True)
class ImageInfo:
    """A local image. `id` differs between image stores; `digests` (repository@sha256) and `layers` do not."""

    id: str
    tags: tuple[str, ...]
    digests: tuple[str, ...]
    labels: Mapping[str, str]
    layers: tuple[str, ...]
    platform: str
    size: int

    @property
    def top(self) -> str:
        """The digest of its last layer: which build it is, whatever store it lies in."""
        return self.layers[-1] if self.layers else self.id


@dataclass(frozen=True)
class Finished:
    """A container that ran to its end. `timed_out` means it was ended."""

    exit_code: int
    output: str
    timed_out: bool = False


@dataclass(frozen=True)
class Mount:
    """A host path in the container, read-only unless said otherwise."""

    source: str
    target: str
    read_only: bool = True


@dataclass(frozen=True)
class ContainerSpec:
    """A container to create, with the safe defaults: bridge network, no capabilities, no restarts, private ipc.

    `ports` maps a container port to (host address, host port). `gpus` are UUIDs, or ("all",), or none.
    `memory` and `shm_size` are in bytes or in Docker's short form (`32g`).
    """

    name: str
    image: str
    command: tuple[str, ...]
    entrypoint: tuple[str, ...] | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    mounts: tuple[Mount, ...] = ()
    network: str = "bridge"
    ports: Mapping[int, tuple[str, int]] = field(default_factory=dict)
    ipc: Literal["private", "host"] = "private"
    shm_size: str | None = None
    memory: str | None = None
    memlock_unlimited: bool = False
    cap_add: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()
    user: str | None = None


@dataclass(frozen=True)
class ContainerInfo:
    """A container as the engine sees it. `status` is Docker's: created, running, exited, dead, ..."""

    id: str
    name: str
    image: str
    status: str
    exit_code: int | None
    oom_killed: bool
    started_at: str
    labels: Mapping[str, str]
    pid: int = 0


class ImageStore(Protocol):
    """Images: resolve, fetch, look at, build, name."""

    def resolve(self, ref: str) -> Resolved:
        """What a tag means in its registry, without pulling. HubError if the registry does not say."""

    def pull(self, repository: str, digest: str, platform: str | None, progress: Progress | None = None) -> ImageInfo:
        """Fetch by digest, with the registry's real errors (HubError) and a full disk's (EngineError)."""

    def image(self, ref: str) -> ImageInfo | None:
        """A local image by name, digest or id; None if it is not here."""

    def read_files(self, image: str, paths: Sequence[str]) -> dict[str, bytes | None]:
        """Files of a local image, without running it; None for one that it lacks."""

    def build(
        self, context: bytes, build_args: Mapping[str, str], platform: str | None, progress: Progress | None = None
    ) -> str:
        """Build a context without network and without naming the result; its id. EngineError in the builder's words."""

    def tag(self, image_id: str, name: str) -> None:
        """Give a local image a name, taking it from whatever had it."""

    def untag(self, name: str) -> None:
        """Take a name away; nothing happens if there is none."""

    def save(self, image_id: str) -> Iterator[bytes]:
        """A local image by id, as the pieces of one archive that holds no name for it."""

    def load(self, pieces: Iterator[bytes]) -> str:
        """Take in the archive that `save` made, piece by piece; the image's id here. EngineError leaves no image."""

    def remove_image(self, image_id: str) -> None:
        """Remove an image that has no name; nothing happens if it is in use or gone."""

    def run_check(
        self, image: str, argv: Sequence[str], timeout_s: float, env: Mapping[str, str] | None = None
    ) -> Finished:
        """Run a program in a throwaway container without network, ended after `timeout_s` seconds."""


class ContainerHost(Protocol):
    """Containers: create, start, stop, look at. Only labelled ones are ever touched."""

    def create(self, spec: ContainerSpec) -> str:
        """Create a container; its id. EngineError if the name is taken or the image is not here."""

    def start(self, container: str) -> None:
        """Start it. EngineError says so where the GPU runtime is missing."""

    def stop(self, container: str, timeout_s: int = 30) -> None:
        """SIGTERM, then SIGKILL after `timeout_s` seconds; nothing happens if it has ended or is gone."""

    def signal(self, container: str, name: str) -> None:
        """Send a signal to its first process."""

    def remove(self, container: str) -> None:
        """Remove an ended container; nothing happens if it is gone."""

    def container(self, container: str) -> ContainerInfo | None:
        """The container by id or name; None if it is gone."""

    def containers(self, labels: Mapping[str, str]) -> list[ContainerInfo]:
        """All containers, running or not, that carry these labels (an empty value: any value)."""

    def execute(self, container: str, argv: Sequence[str]) -> str:
        """What a program that is started beside the first one of a running container writes to stdout."""

    def logs(self, container: str, follow: bool = False, tail: int | None = None) -> Iterator[bytes]:
        """Pieces of stdout and stderr as they were written."""


class ContainerEngine(ImageStore, ContainerHost, Protocol):
    """A whole engine."""

    def version(self) -> str:
        """Engine version and API version, for receipts."""

    def platform(self) -> str:
        """The platform of the engine's machine, such as `linux/arm64`."""
