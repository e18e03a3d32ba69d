"""The Docker engine, the only importer of the docker SDK. Images are here, containers in `docker_containers.py`.

Low-level calls throughout: the SDK's convenience methods swallow the errors of a pull and guess the id of a build.
"""

from __future__ import annotations

import contextlib
import io
import posixpath
import re
import tarfile
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import docker
from docker.errors import APIError, DockerException, ImageNotFound, NotFound

from recipectl.errors import EngineError, HubError, RecipectlError
from recipectl.images import buildx
from recipectl.images.docker_containers import Containers
from recipectl.images.port import Finished, ImageInfo, Progress, Resolved

PIECE = 1 << 20
PACKING_S = 1800
# A throwaway container says until when it may be wanted (seconds since 1970), so that what a killed run left behind is
# told from what another one is using. The margin is for clocks that differ.
CHECK_LABEL, CHECK_MARGIN_S = "io.recipectl.check", 600
DEFAULT_HOST = "unix:///var/run/docker.sock"
_UNREACHABLE = ("connection refused", "no such host", "i/o timeout", "deadline exceeded", "network is unreachable",
                "tls handshake", "no route to host", "eof", "server misbehaving", "connection reset")  # fmt: skip
_NO_GPU = "nvidia-smi -L there lists them by UUID; `recipectl doctor` says which fits"
_NO_TOOLKIT = "install nvidia-container-toolkit and restart the engine"
# Words of the engine, in lower case -> what they mean, and what helps.
_MEANS = (
    (("no space left on device",), "the engine's disk is full", "docker system df; docker system prune"),
    (("nvidia-container-cli", "unknown device"), "that host has no such GPU", _NO_GPU),
    (("unresolvable cdi devices",), "that host has no such GPU", _NO_GPU),
    (("could not select device driver",), "the engine cannot give containers a GPU", _NO_TOOLKIT),
    (("nvidia-container",), "the engine cannot give containers a GPU", _NO_TOOLKIT),
)
_UNKNOWN = ("manifest unknown", "not found", "does not exist", "name unknown")
_REFUSED = ("unauthorized", "denied", "authentication required", "forbidden")


class DockerEngine(Containers):
    """One engine. `host` is a Docker host URL (unix, tcp, ssh); None follows the machine's default."""

    def __init__(self, host: str | None = None, timeout_s: int = 60) -> None:
        self.host = host or DEFAULT_HOST
        try:
            api = docker.APIClient(
                base_url=self.host, version="auto", timeout=timeout_s, use_ssh_client=self.host.startswith("ssh://")
            )
            self._info = api.version()
        except (DockerException, OSError) as err:
            raise _unreachable(self.host, err) from err
        super().__init__(api, self.guard, APIError)

    def close(self) -> None:
        """Drop the connection."""
        self.api.close()

    def version(self) -> str:
        return f"docker {self._info['Version']} (API {self._info['ApiVersion']})"

    def platform(self) -> str:
        arch = {"x86_64": "amd64", "aarch64": "arm64"}.get(self._info["Arch"], self._info["Arch"])
        return f"{self._info['Os']}/{arch}"

    @contextlib.contextmanager
    def guard(self, doing: str, on: str) -> Iterator[None]:
        """Turn what the SDK raises into our errors; `doing` completes "could not ..."."""
        try:
            yield
        except APIError as err:
            raise translate(str(err.explanation or err), doing, on) from err
        except (DockerException, OSError) as err:
            if "Read timed out" in str(err):
                raise EngineError(
                    f"could not {doing}: the engine did not answer in time", on=on, next_step="docker info"
                ) from err
            raise _unreachable(self.host, err) from err

    def resolve(self, ref: str) -> Resolved:
        with self.guard("resolve the image", ref):
            found = self.api.inspect_distribution(ref)
        platforms = sorted({_platform(p) for p in found.get("Platforms") or [] if p.get("os") == "linux"})
        return Resolved(found["Descriptor"]["digest"], tuple(platforms))

    def pull(self, repository: str, digest: str, platform: str | None, progress: Progress | None = None) -> ImageInfo:
        name = f"{repository}@{digest}"
        with self.guard("pull the image", name):
            stream = self.api.pull(repository, tag=digest, stream=True, decode=True, platform=platform)
            _follow(stream, name, "pull the image", progress)
        found = self.image(name)
        if found is None:
            raise EngineError("the pull ended without an image", on=name, next_step="docker system df; try again")
        return found

    def image(self, ref: str) -> ImageInfo | None:
        with self.guard("inspect the image", ref):
            try:
                raw = self.api.inspect_image(ref)
            except ImageNotFound:
                return None
        return ImageInfo(
            raw["Id"], tuple(raw.get("RepoTags") or ()), tuple(raw.get("RepoDigests") or ()),
            raw["Config"].get("Labels") or {}, tuple(raw["RootFS"].get("Layers") or ()),
            f"{raw['Os']}/{raw['Architecture']}", int(raw["Size"]),
        )  # fmt: skip

    def read_files(self, image: str, paths: Sequence[str]) -> dict[str, bytes | None]:
        with self.guard("read files of the image", image), self._throwaway(image, ["true"], {}, 0) as container:
            return {path: self._read_file(container, path) for path in paths}

    def _read_file(self, container: str, path: str) -> bytes | None:
        try:
            stream, _ = self.api.get_archive(container, path)
        except NotFound:
            return None
        with tarfile.open(fileobj=io.BytesIO(b"".join(stream))) as tar:
            member = tar.getmember(posixpath.basename(path))
            handle = tar.extractfile(member) if member.isfile() else None
            return handle.read() if handle else None

    def build(
        self, context: bytes, build_args: Mapping[str, str], platform: str | None, progress: Progress | None = None
    ) -> str:
        if buildx.available():
            return buildx.build(self.host, context, build_args, platform, progress)
        with self.guard("build the image", "classic builder"):
            stream = self.api.build(
                fileobj=io.BytesIO(context), custom_context=True, decode=True, rm=True, forcerm=True,
                buildargs=dict(build_args), network_mode="none", pull=False,
            )  # fmt: skip
            return _follow(stream, "classic builder", "build the image", progress)

    def tag(self, image_id: str, name: str) -> None:
        repository, _, tag = name.rpartition(":")
        with self.guard("tag the image", name):
            self.api.tag(image_id, repository, tag)

    def untag(self, name: str) -> None:
        with self.guard("untag the image", name), contextlib.suppress(ImageNotFound):
            self.api.remove_image(name, noprune=True)

    def save(self, image_id: str) -> Iterator[bytes]:
        with self.guard("save the image", image_id):
            with self._patient():
                stream = self.api.get_image(image_id, chunk_size=PIECE)
            yield from stream

    def load(self, pieces: Iterator[bytes]) -> str:
        said: list[str] = []

        def loaded(_done: int, _total: int, line: str) -> None:
            said.extend(re.findall(r"^Loaded image(?: ID)?: (\S+)", line))

        with self.guard("load the image", self.host), self._patient():
            # Not quiet: each layer's progress is an answer, and an answer in time is what a connection waits for.
            _follow(self.api.load_image(pieces, quiet=False), self.host, "load the image", loaded)
        if not said:
            raise EngineError("the load ended without an image", on=self.host, next_step="docker system df; try again")
        return said[-1]

    @contextlib.contextmanager
    def _patient(self) -> Iterator[None]:
        """An engine packs a whole image before its first byte, and unpacks one before its first word."""
        before, self.api.timeout = self.api.timeout, PACKING_S
        try:
            yield
        finally:
            self.api.timeout = before

    def remove_image(self, image_id: str) -> None:
        found = self.image(image_id)
        if found is None or found.tags:  # by id, the engine would take the last name of somebody else's away
            return
        with self.guard("remove the image", image_id), contextlib.suppress(APIError):
            self.api.remove_image(image_id)  # in use by a container is fine

    def run_check(
        self, image: str, argv: Sequence[str], timeout_s: float, env: Mapping[str, str] | None = None
    ) -> Finished:
        with (
            self.guard("run a check in the image", image),
            self._throwaway(image, argv, env or {}, timeout_s) as container,
        ):
            self.api.start(container)
            deadline = time.monotonic() + timeout_s
            timed_out = False
            while (state := self.api.inspect_container(container)["State"])["Running"]:
                if time.monotonic() > deadline:
                    timed_out = True
                    self.api.kill(container)
                    break
                time.sleep(0.05)
            output = self.api.logs(container, stdout=True, stderr=True).decode("utf-8", "replace")
        return Finished(int(state["ExitCode"]), output, timed_out)

    @contextlib.contextmanager
    def _throwaway(self, image: str, argv: Sequence[str], env: Mapping[str, str], life_s: float) -> Iterator[str]:
        """A container without network and capabilities that is removed whatever happens; those of runs that were
        killed are removed first."""
        self._sweep()
        config = self.api.create_host_config(
            network_mode="none", cap_drop=["ALL"], security_opt=["no-new-privileges:true"], log_config=None
        )
        created = self.api.create_container(
            image, command=list(argv[1:]), entrypoint=[argv[0]], environment=dict(env), host_config=config,
            labels={CHECK_LABEL: str(int(time.time() + life_s + CHECK_MARGIN_S))}, healthcheck={"Test": ["NONE"]},
        )  # fmt: skip
        try:
            yield str(created["Id"])
        finally:
            with contextlib.suppress(APIError):
                self.api.remove_container(created["Id"], force=True, v=True)

    def _sweep(self) -> None:
        for left in self.api.containers(all=True, filters={"label": CHECK_LABEL}):
            until = left["Labels"].get(CHECK_LABEL, "")
            if until.isdigit() and int(until) < time.time():
                with contextlib.suppress(APIError):
                    self.api.remove_container(left["Id"], force=True, v=True)


def _platform(raw: Mapping[str, Any]) -> str:
    return f"{raw.get('os')}/{raw.get('architecture')}"


def _follow(stream: Iterator[Any], on: str, doing: str, progress: Progress | None) -> str:
    """Read a pull or build stream to its end; the image id that a build reports. Its errors become ours."""
    done: dict[str, tuple[int, int]] = {}
    image_id = ""
    said: list[str] = []
    for event in stream:
        if "error" in event or "errorDetail" in event:
            message = (event.get("errorDetail") or {}).get("message") or event.get("error") or "no reason given"
            raise translate(str(message), doing, on, details=[line for line in said if line][-15:])
        if text := str(event.get("stream") or "").rstrip():
            said.append(text)
        image_id = (event.get("aux") or {}).get("ID") or image_id
        if progress:
            detail = event.get("progressDetail") or {}
            if detail.get("total") and event.get("status") == "Downloading":
                done[str(event.get("id"))] = (int(detail.get("current", 0)), int(detail["total"]))
            line = text or " ".join(str(event[k]) for k in ("id", "status") if event.get(k))
            progress(sum(d for d, _ in done.values()), sum(t for _, t in done.values()), line)
    return image_id


def translate(message: str, doing: str, on: str, details: Sequence[str] = ()) -> RecipectlError:
    """The engine's words as one of our errors."""
    low = message.lower()
    what = f"could not {doing}"
    for words, meaning, fix in _MEANS:
        if all(word in low for word in words):
            return EngineError(f"{what}: {meaning}", on=on, seen=message, details=details, next_step=fix)
    if "pull" in doing or "resolve" in doing:
        if any(word in low for word in _REFUSED):
            return HubError(f"{what}: the registry refuses, or there is no such repository", on=on, seen=message,
                            next_step="docker login, if the image is private")  # fmt: skip
        if any(word in low for word in _UNKNOWN):
            return HubError(f"{what}: the registry does not have it", on=on, seen=message, expected=on,
                            next_step="registries lose old digests: `recipectl lock --update all` pins what the "
                            "tag means now; a copy through `docker load` has no digest and does not count")  # fmt: skip
        if any(word in low for word in _UNREACHABLE):
            return HubError(f"{what}: its registry cannot be reached", on=on, seen=message,
                            next_step="check the network, or name a mirror in the engine's `registry-mirrors`: "
                            "it keeps digests, which `docker save` and `load` lose")  # fmt: skip
    return EngineError(what, on=on, seen=message, details=details, next_step="docker info")


def _unreachable(host: str, err: BaseException) -> EngineError:
    text = str(err)
    if "Permission denied" in text or "PermissionError" in text:
        return EngineError("no permission to talk to the Docker engine", on=host, seen="permission denied",
                           next_step="add your user to the group `docker` and log in again, or use sudo")  # fmt: skip
    return EngineError("the Docker engine does not answer", on=host, seen=text[:300],
                       next_step="start it (systemctl start docker), or name another with DOCKER_HOST")  # fmt: skip
