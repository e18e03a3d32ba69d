"""Containers of a Docker engine: the half of `DockerEngine` that serving uses. Works on its client, imports no SDK."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from recipectl.errors import EngineError
from recipectl.images.port import ContainerInfo, ContainerSpec

Guard = Callable[[str, str], AbstractContextManager[None]]
_GONE = 404
_NOT_MODIFIED = 304


class Containers:
    """Create, start, stop and look at containers through a low-level client `api`, which raises `error`."""

    def __init__(self, api: Any, guard: Guard, error: type[Exception]) -> None:
        self.api = api
        self._guard = guard
        self._error = error

    def create(self, spec: ContainerSpec) -> str:
        with self._guard("create the container", spec.name):
            created = self.api.create_container(
                spec.image, command=list(spec.command), name=spec.name, environment=dict(spec.env),
                entrypoint=None if spec.entrypoint is None else list(spec.entrypoint), labels=dict(spec.labels),
                ports=list(spec.ports), user=spec.user, host_config=self._host_config(spec),
                healthcheck={"Test": ["NONE"]},
            )  # fmt: skip
        return str(created["Id"])

    def _host_config(self, spec: ContainerSpec) -> Any:
        return self.api.create_host_config(
            network_mode=spec.network,
            port_bindings=dict(spec.ports) or None,
            binds=[f"{m.source}:{m.target}:{'ro' if m.read_only else 'rw'}" for m in spec.mounts],
            ipc_mode="host" if spec.ipc == "host" else None,
            shm_size=spec.shm_size,
            mem_limit=spec.memory,
            ulimits=[{"Name": "memlock", "Soft": -1, "Hard": -1}] if spec.memlock_unlimited else None,
            cap_drop=["ALL"],
            cap_add=list(spec.cap_add) or None,
            devices=[f"{d}:{d}:rwm" for d in spec.devices] or None,
            device_requests=_device_requests(spec.gpus),
            security_opt=["no-new-privileges:true"],
            restart_policy={"Name": "no"},
            log_config={"Type": "json-file", "Config": {"max-size": "200m", "max-file": "2"}},
            init=True,
        )

    def start(self, container: str) -> None:
        with self._guard("start the container", container):
            self.api.start(container)

    def stop(self, container: str, timeout_s: int = 30) -> None:
        with self._guard("stop the container", container):
            self._unless_gone(lambda: self.api.stop(container, timeout=timeout_s))

    def signal(self, container: str, name: str) -> None:
        with self._guard("signal the container", container):
            self._unless_gone(lambda: self.api.kill(container, name))

    def remove(self, container: str) -> None:
        with self._guard("remove the container", container):
            self._unless_gone(lambda: self.api.remove_container(container, v=True))

    def container(self, container: str) -> ContainerInfo | None:
        with self._guard("inspect the container", container):
            found: list[Any] = []
            self._unless_gone(lambda: found.append(self.api.inspect_container(container)))
        if not found:
            return None
        raw, state = found[0], found[0]["State"]
        running = state["Status"] in ("running", "created", "restarting", "paused")
        return ContainerInfo(
            raw["Id"], raw["Name"].lstrip("/"), raw["Config"]["Image"], state["Status"],
            None if running else int(state["ExitCode"]), bool(state.get("OOMKilled")), state.get("StartedAt", ""),
            raw["Config"].get("Labels") or {}, int(state.get("Pid") or 0),
        )  # fmt: skip

    def containers(self, labels: Mapping[str, str]) -> list[ContainerInfo]:
        if not labels:
            raise EngineError("containers are only ever listed by label", expected="at least one label")
        wanted = [f"{k}={v}" if v else k for k, v in labels.items()]
        with self._guard("list containers", ", ".join(wanted)):
            ids = [c["Id"] for c in self.api.containers(all=True, filters={"label": wanted})]
        return [found for i in ids if (found := self.container(i))]

    def logs(self, container: str, follow: bool = False, tail: int | None = None) -> Iterator[bytes]:
        with self._guard("read the log of the container", container):
            yield from self.api.logs(
                container, stdout=True, stderr=True, stream=True, follow=follow, tail="all" if tail is None else tail
            )

    def execute(self, container: str, argv: Sequence[str]) -> str:
        with self._guard("run a program in the container", container):
            made = self.api.exec_create(container, list(argv), stderr=False)
            return bytes(self.api.exec_start(made["Id"])).decode(errors="replace")

    def _unless_gone(self, call: Callable[[], Any]) -> None:
        """Run a call; a container that is gone, or has stopped already, is what the caller wanted."""
        try:
            call()
        except self._error as err:
            code = getattr(getattr(err, "response", None), "status_code", None)
            text = str(err)
            if code in (_GONE, _NOT_MODIFIED) or "is not running" in text or "already in progress" in text:
                return
            raise


def _device_requests(gpus: tuple[str, ...]) -> list[dict[str, Any]] | None:
    if not gpus:
        return None
    which: dict[str, Any] = {"Count": -1} if gpus == ("all",) else {"Count": 0, "DeviceIDs": list(gpus)}
    return [{"Driver": "", "Capabilities": [["gpu"]], "Options": {}, **which}]
