"""Which receipt `report` and `compare` mean when none is named."""

from __future__ import annotations

import os
from pathlib import Path

from recipectl.commands.context import newest


def test_within_one_second_the_file_written_last_is_the_newest(tmp_path: Path) -> None:
    # By name alone serve would follow experiment, and the second bench of a second would come before the first.
    order = ("20261130T092721Z-serve-r.json", "20261130T092722Z-serve-r.json", "20261130T092722Z-bench-r.json",
             "20261130T092722Z-bench-r-2.json", "20261130T092722Z-experiment-r.json")  # fmt: skip
    for number, name in enumerate(order):
        (tmp_path / name).write_text("{}")
        os.utime(tmp_path / name, (number, number))
        assert newest(tmp_path.glob("*.json")) == tmp_path / name
    os.utime(tmp_path / order[0], (99, 99))  # copied since: the second in the name decides first
    assert newest(tmp_path.glob("*.json")) == tmp_path / order[-1]
    assert newest(()) is None
