"""The Hugging Face hub, through `huggingface_hub` 2.x: the one importer of that library.

Endpoint and token are arguments: the library's own variables are read at import and would tie a process to one hub.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from recipectl.errors import HubError
from recipectl.hub.bodies import Bodies, HttpBody
from recipectl.hub.faults import Where, fault, unreachable
from recipectl.hub.port import RemoteFile, Resolved

# Before the import: without these the library calls home on its first request.
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
os.environ.setdefault("HF_HUB_DISABLE_UPDATE_CHECK", "1")

import httpx2
from huggingface_hub import HfApi
from huggingface_hub.errors import HfHubHTTPError, HFValidationError
from huggingface_hub.hf_api import ModelInfo, RepoFile


class HuggingFace:
    """One endpoint with one token (None: anonymous, even where the library would find a token by itself).

    `licenses` is what is known of repositories already, to be shown where one is gated; `resolve` adds to it.
    """

    def __init__(
        self,
        endpoint: str,
        token: str | None,
        idle_s: float = 30.0,
        connections: int = 16,
        licenses: Mapping[str, str | None] | None = None,
    ) -> None:
        self.endpoint = endpoint.rstrip("/")
        self._api = HfApi(endpoint=self.endpoint, token=token or False, library_name="recipectl")
        self._bodies = Bodies(self.endpoint, token, idle_s, connections)
        self._idle_s = idle_s
        self._licenses = dict(licenses or {})

    def resolve(self, repo: str, ref: str) -> Resolved:
        """The commit that a ref means now. Works on gated repositories without access, which `files` does not."""
        with self._mapped(repo, ref):
            info = self._api.model_info(repo, revision=ref, timeout=self._idle_s)
        if not info.sha or not re.fullmatch(r"[0-9a-f]{40}", info.sha):
            raise HubError("the hub names no commit", on=f"{repo}@{ref} at {self.endpoint}", seen=info.sha,
                           expected="40 hex digits")  # fmt: skip
        self._licenses[repo] = _license(info)
        return Resolved(info.sha, bool(info.gated), self._licenses[repo])

    def files(self, repo: str, commit: str) -> list[RemoteFile]:
        """Every file at a commit, all pages of the listing."""
        with self._mapped(repo, commit):
            entries = list(self._api.list_repo_tree(repo, revision=commit, recursive=True))
        return [_remote_file(e) for e in entries if isinstance(e, RepoFile)]

    def open(self, repo: str, commit: str, path: str, start: int = 0, end: int | None = None) -> HttpBody:
        """See `Hub.open`."""
        return self._bodies.open(repo, commit, path, start, end, self._licenses.get(repo))

    @contextmanager
    def _mapped(self, repo: str, ref: str) -> Iterator[None]:
        try:
            yield
        except HFValidationError as err:
            raise HubError("this is no repository name", on=repo, seen=err, expected="owner/name") from err
        except HfHubHTTPError as err:
            where = Where(self.endpoint, repo, ref, license=self._licenses.get(repo))
            raise fault(where, err.response.status_code, err.response.headers, err.server_message) from err
        except httpx2.HTTPError as err:
            raise unreachable(self.endpoint, f"{type(err).__name__}: {err}") from err
        except (ValueError, KeyError, TypeError) as err:  # an endpoint that answers, but is no hub
            on, seen = f"{repo} at {self.endpoint}", f"{type(err).__name__}: {err}"
            raise HubError("the answer is not a hub's", on=on, seen=seen, next_step="check HF_ENDPOINT") from err


def _license(info: ModelInfo) -> str | None:
    card = info.card_data
    if card is None:
        return None
    license_ = card.get("license")
    if isinstance(license_, list):
        license_ = " AND ".join(map(str, license_))
    return str(card.get("license_name") or license_) if license_ == "other" else license_


def _remote_file(entry: RepoFile) -> RemoteFile:
    if entry.lfs is not None:
        return RemoteFile(entry.path, int(entry.lfs.size), None, str(entry.lfs.sha256))
    return RemoteFile(entry.path, int(entry.size), str(entry.blob_id), None)
