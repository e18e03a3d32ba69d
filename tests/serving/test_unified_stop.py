"""Unified memory: a container that will not end is left and listed, and only `--force` kills it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.serving.test_docker_cli import Shop, inspected, shop, yard  # noqa: F401

# `stop` waits its 30 s twice.
pytestmark = [pytest.mark.docker, pytest.mark.slow, pytest.mark.timeout(300)]


def test_what_ignores_sigterm_stays_until_force(shop: Shop) -> None:  # noqa: F811
    assert shop.serve("ignores-sigterm").returncode == 0
    # A lane for GB10 wants an ARM image. What `stop` asks is in the record of the plan, and there this server is one.
    record = next(Path(os.environ["RECIPECTL_STATE"]).glob("deployments/*/deployment.json"))
    data = json.loads(record.read_text())
    data["plan"]["unified_memory"] = True
    record.write_text(json.dumps(data))
    name = shop.containers()[0]

    left = shop("stop", "--json")
    assert left.returncode == 7, left.stderr
    error = json.loads(left.stdout)
    assert error["what"] == "not everything has stopped" and error["next"] == "recipectl stop --force"
    assert error["details"] == [f"tiny-dflash-cpu: container {name} on local (running)"]
    assert shop.containers() == [name]
    state = inspected(shop)["State"]
    assert isinstance(state, dict) and state["Running"]
    assert json.loads(shop("status", "--json").stdout)["deployments"][0]["state"] == "ready"

    forced = shop("stop", "--force")
    assert forced.returncode == 0 and "nothing of it is left" in forced.stdout, forced.stderr
    assert shop.containers() == []
