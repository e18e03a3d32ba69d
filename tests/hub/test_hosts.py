"""`pull --hosts`: one download, then copies over a real ssh server, verified there."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
import yaml

from recipectl.errors import UsageError
from recipectl.hub.hosts import Host, parse_host, parse_hosts
from tests.conftest import need
from tests.hub import models
from tests.hub.conftest import Ssh
from tests.hub.pair import Pair


def far_root(pair: Pair, ssh: Ssh) -> dict[str, str]:
    """The far side is this machine too, so its file system is made another one: a mount namespace with an empty cache.

    The `ssh` on PATH enters it through the server: ForceCommand keeps the two sides apart.
    """
    if os.geteuid() != 0:
        need("root", "the far side gets a file system of its own")
    far = pair.folder / "far"
    far.mkdir(exist_ok=True)
    config = ssh.bin.parent / "far.sh"
    enter = f'mkdir -p {pair.cache} && mount --bind {far} {pair.cache} && exec "$0" -c "$1"'
    config.write_text(f"#!/bin/sh\nexec unshare --mount sh -c '{enter}' /bin/sh \"$SSH_ORIGINAL_COMMAND\"\n")
    config.chmod(0o755)
    (ssh.bin.parent / "authorized").write_text(f'command="{config}" ' + (ssh.bin.parent / "user.pub").read_text())
    return {"PATH": f"{ssh.bin}:{os.environ['PATH']}"}


def far_files(pair: Pair, name: str) -> dict[str, bytes]:
    folder = pair.folder / "far" / "models" / name
    return {p.relative_to(folder).as_posix().split("/", 1)[1]: p.read_bytes() for p in folder.rglob("*") if p.is_file()}


class TestCopies:
    def test_downloads_once_and_copies_to_two_hosts(self, pair: Pair, ssh: Ssh) -> None:
        env = far_root(pair, ssh)
        done = pair.pull("--hosts", f"{ssh.host},root@127.0.0.1:{ssh.port}", "--json", **env)
        assert done.returncode == 0, done.stderr
        assert far_files(pair, "acme--Target") == pair.wanted(pair.target)
        assert far_files(pair, "acme--Drafter") == pair.wanted(pair.drafter)
        shard = "model-00001-of-00002.safetensors"
        bodies = [s for s in pair.hub.requests(shard) if s.origin == "cdn" and "Range" not in s.headers]
        assert len(bodies) == 1, "the model was downloaded once"
        hosts = json.loads(done.stdout)["models"]["target"]["hosts"]
        assert len(hosts) == 2

    def test_second_copy_sends_nothing(self, pair: Pair, ssh: Ssh) -> None:
        env = far_root(pair, ssh)
        pair.pull("--hosts", ssh.host, **env)
        again = pair.pull("--hosts", ssh.host, "--json", **env)
        sent = [h["sent_bytes"] for m in json.loads(again.stdout)["models"].values() for h in m["hosts"]]
        assert sent == [0, 0]

    def test_half_a_copy_is_found_and_gone_on_with(self, pair: Pair, ssh: Ssh) -> None:
        env = far_root(pair, ssh)
        assert pair.pull("--hosts", ssh.host, **env).returncode == 0
        shard = "model-00001-of-00002.safetensors"
        there = next((pair.folder / "far").rglob(shard))
        body, sha = there.read_bytes(), _locked_sha(pair, shard)
        there.unlink()
        part = pair.folder / "far" / "partial" / f"{sha}.part"
        part.parent.mkdir(exist_ok=True)
        part.write_bytes(body[:20000])
        again = pair.pull("--hosts", ssh.host, "--json", **env)
        assert again.returncode == 0, again.stderr
        assert json.loads(again.stdout)["models"]["target"]["hosts"][0]["sent_bytes"] == len(body) - 20000
        assert there.read_bytes() == body

    def test_rotten_half_is_refused_then_sent_whole(self, pair: Pair, ssh: Ssh) -> None:
        env = far_root(pair, ssh)
        assert pair.pull("--hosts", ssh.host, **env).returncode == 0
        shard = "model-00001-of-00002.safetensors"
        there = next((pair.folder / "far").rglob(shard))
        body = there.read_bytes()
        there.unlink()
        (pair.folder / "far" / "partial" / f"{_locked_sha(pair, shard)}.part").write_bytes(b"\0" * 20000)
        first = pair.pull("--hosts", ssh.host, **env)
        assert first.returncode == 4 and "arrived with other bytes" in first.stderr
        assert not there.exists()
        assert pair.pull("--hosts", ssh.host, **env).returncode == 0
        assert there.read_bytes() == body

    def test_changed_and_unknown_files_there_are_put_aside(self, pair: Pair, ssh: Ssh) -> None:
        env = far_root(pair, ssh)
        assert pair.pull("--hosts", ssh.host, **env).returncode == 0
        config = next((pair.folder / "far" / "models" / "acme--Target").rglob("config.json"))
        right = config.read_bytes()
        config.write_bytes(right[:-1] + b" ")
        config.with_name("modeling_evil.py").write_text("import os")
        assert pair.pull("--hosts", ssh.host, **env).returncode == 0
        assert config.read_bytes() == right
        assert not config.with_name("modeling_evil.py").exists()
        assert len(list((pair.folder / "far" / "quarantine").rglob("modeling_evil.py"))) == 1

    def test_folders_and_links_where_files_belong_are_put_aside_whole(self, pair: Pair, ssh: Ssh) -> None:
        pair.target.commit({**models.target(), "extra/more.json": b"{}"})
        pair.write()
        env = far_root(pair, ssh)
        assert pair.pull("--hosts", ssh.host, **env).returncode == 0
        (folder,) = (pair.folder / "far" / "models" / "acme--Target").iterdir()
        outside = pair.folder / "outside"
        outside.mkdir()
        (outside / "more.json").write_bytes(b"{}")
        for text in ("first", "second"):
            (folder / "config.json").unlink()
            (folder / "config.json").mkdir()
            (folder / "config.json" / "x").write_text(text)
            (folder / "extra" / "more.json").unlink()
            (folder / "extra").rmdir()
            (folder / "extra").symlink_to(outside)
            again = pair.pull("--hosts", ssh.host, **env)
            assert again.returncode == 0, again.stderr
            assert far_files(pair, "acme--Target") == pair.wanted(pair.target)
            assert not (folder / "extra").is_symlink()
        quarantine = pair.folder / "far" / "quarantine" / "acme--Target"
        assert sorted(p.read_text() for p in quarantine.glob("*/config.json/x")) == ["first", "second"]
        assert (outside / "more.json").read_bytes() == b"{}"


def test_host_that_does_not_answer(pair: Pair, ssh: Ssh) -> None:
    done = pair.pull("--hosts", f"127.0.0.1:{ssh.port + 1}" if ssh.port < 65535 else "127.0.0.1:1",
                     PATH=f"{ssh.bin}:{os.environ['PATH']}")  # fmt: skip
    assert done.returncode == 6
    assert "the copy to 127.0.0.1 failed" in done.stderr and "Connection refused" in done.stderr


def test_far_side_that_cannot_write_says_so(pair: Pair, ssh: Ssh) -> None:
    script = ssh.bin.parent / "full.sh"
    script.write_text("#!/bin/sh\necho 'python3: not found' >&2\nexit 127\n")
    script.chmod(0o755)
    authorized = ssh.bin.parent / "authorized"
    authorized.write_text(f'command="{script}" ' + (ssh.bin.parent / "user.pub").read_text())
    done = pair.pull("--hosts", ssh.host, PATH=f"{ssh.bin}:{os.environ['PATH']}")
    assert done.returncode == 6
    assert "python3: not found" in done.stderr


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("spark-2", Host("spark-2")),
        ("me@spark-2", Host("me@spark-2")),
        ("ssh://me@10.0.0.2:2222", Host("me@10.0.0.2", 2222)),
    ],
)
def test_hosts(text: str, host: Host) -> None:
    assert parse_host(text) == host


@pytest.mark.parametrize("text", ["-oProxyCommand=evil", "a b", "unix:///var/run/docker.sock", "", "ssh://"])
def test_no_hosts(text: str) -> None:
    with pytest.raises(UsageError):
        parse_host(text)


def test_each_host_is_copied_to_once() -> None:
    assert parse_hosts("a, ssh://b:22,a,") == [Host("a"), Host("b", 22)]


@pytest.mark.parametrize("text", ["a b", ",", "spark-2,-oProxyCommand=evil"])
def test_a_wrong_host_is_told_before_anything_is_fetched(pair: Pair, text: str) -> None:
    done = pair.pull("--hosts", text)
    assert done.returncode == 2 and "expected: name, user@name" in done.stderr
    assert pair.hub.seen == []


def _locked_sha(pair: Pair, name: str) -> str:
    files = yaml.safe_load(pair.lock.read_text())["models"]["target"]["files"]
    return str(next(f["sha256"] for f in files if f["path"] == name))


def test_script_runs_on_any_python3(tmp_path: Path) -> None:
    """What is sent needs nothing but the standard library: -I -S shuts out site-packages and the environment."""
    far = Path(__file__).parents[2] / "recipectl" / "hub" / "far.py"
    order = {"folder": str(tmp_path / "m"), "parts": str(tmp_path / "p"), "aside": str(tmp_path / "q"),
             "receipts": str(tmp_path / "r.json"), "files": []}  # fmt: skip
    argv = ["/usr/bin/env", "python3", "-I", "-S", str(far)]
    done = subprocess.run(argv, input=json.dumps(order) + "\n", text=True, capture_output=True, check=True)
    assert [json.loads(line) for line in done.stdout.splitlines()][-1] == {"problems": [], "files": 0, "bytes": 0}
