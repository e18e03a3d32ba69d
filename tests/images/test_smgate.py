"""The SM gate on machines that exist: GB300, GB10, B200, a Station with a second card, no GPU at all."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from recipectl.images.smgate import Row, Subject, check, covers, failures, matching
from recipectl.recipe.families import FAMILIES


@dataclass(frozen=True)
class Card:
    name: str
    capability: tuple[int, int]
    uuid: str = "GPU-1"


GB300, GB10, B200 = Card("NVIDIA GB300", (10, 3)), Card("NVIDIA GB10", (12, 1)), Card("NVIDIA B200", (10, 0))
RTX = Card("NVIDIA RTX PRO 6000", (12, 0), "GPU-2")
# torch's own list on CUDA 13 wheels for x86_64, as `torch._C._cuda_getArchFlags()` prints such lists
TORCH = ("sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120", "compute_120")


@pytest.mark.parametrize(
    ("arch", "capability", "runs"),
    [
        ("sm_100", (10, 0), True), ("sm_100", (10, 3), True), ("sm_100", (12, 1), False), ("sm_100", (9, 0), False),
        ("sm_100a", (10, 0), True), ("sm_100a", (10, 3), False), ("sm_100f", (10, 3), True), ("sm_103", (10, 0), False),
        ("sm_103a", (10, 3), True), ("compute_90", (10, 3), True), ("compute_100a", (10, 3), False),
        ("compute_100f", (10, 3), True), ("compute_100f", (12, 1), False), ("sm_120", (12, 1), True),
        ("sm_120a", (12, 1), False), ("sm_121a", (12, 1), True), ("compute_120", (12, 1), True),
        ("compute_121", (12, 0), False), ("10.0+PTX", (10, 3), True), ("10.0a", (10, 3), False),
        ("12.0", (12, 1), True), ("9.0+PTX", (12, 1), True), ("8.7", (8, 9), True), ("gfx942", (9, 0), False),
        ("", (9, 0), False),
    ],
)  # fmt: skip
def test_covers(arch: str, capability: tuple[int, int], runs: bool) -> None:
    """CUDA's rules: cubins run within a major on later minors, `a` on one capability, `f` in a family, PTX onwards."""
    assert covers(arch, capability) is runs


def verdicts(rows: list[Row]) -> dict[str, str]:
    return {r.subject: r.verdict for r in rows}


def test_gb300_is_sm100() -> None:
    rows = check(Subject(FAMILIES["sm100"], "linux/arm64", TORCH), [GB300], "aarch64")
    assert verdicts(rows) == {"gpu": "PASS", "platform": "PASS", "code": "PASS"}


def test_code_for_100a_alone_does_not_run_on_gb300() -> None:
    rows = check(Subject(FAMILIES["sm100"], "linux/arm64", ("sm_90", "sm_100a")), [GB300], "aarch64")
    (bad,) = failures(rows)
    assert bad.subject == "code"
    assert "10.3: code built for 100a alone runs on 10.0 only" in bad.message
    assert not failures(check(Subject(FAMILIES["sm100"], "linux/amd64", ("sm_100a",)), [B200], "x86_64"))


def test_gb10_is_not_sm100_although_121_is_larger() -> None:
    (bad,) = failures(check(Subject(FAMILIES["sm100"]), [GB10], "aarch64"))
    assert "sm100 needs 10.0 or 10.3, this machine has NVIDIA GB10 12.1" in bad.message


def test_mxfp8_drafter_on_gb300_names_the_bf16_one() -> None:
    """Seed 2: the MXFP8 drafter needs B12X, which will not run on GB300."""
    subject = Subject(FAMILIES["sm100"], drafter="dflash2-mxfp8", kernels=("b12x",))
    (bad,) = failures(check(subject, [GB300], "aarch64"))
    assert "B12X" in bad.message and "SM12x only" in bad.message
    assert bad.fix == "use the BF16 drafter incoai/GLM-5.3-Flash-DFlash2"
    fine = Subject(FAMILIES["sm121"], kernels=("b12x",))
    assert not failures(check(fine, [GB10], "aarch64"))


def test_a_station_with_two_cards_goes_by_uuid() -> None:
    gb300 = Card("NVIDIA GB300", (10, 3), "GPU-aa")
    rows = check(Subject(FAMILIES["sm100"]), [RTX, gb300], "aarch64")
    assert "GPU-aa is used, chosen by UUID" in rows[0].message
    assert matching(FAMILIES["sm100"], [RTX, gb300]) == [gb300]


def test_without_a_gpu_it_says_what_it_could_not_check() -> None:
    rows = check(Subject(FAMILIES["sm121"], "linux/arm64"), [], "aarch64")
    assert verdicts(rows) == {"gpu": "NOT_CHECKED", "platform": "PASS", "code": "NOT_CHECKED"}
    assert "decided by --sm alone" in rows[0].message


def test_without_a_gpu_code_that_fits_part_of_the_family_is_open() -> None:
    rows = check(Subject(FAMILIES["sm100"], "linux/arm64", ("sm_100a",)), [], "aarch64")
    assert verdicts(rows)["code"] == "NOT_CHECKED"
    rows = check(Subject(FAMILIES["sm100"], "linux/arm64", ("sm_90",)), [], "aarch64")
    assert verdicts(rows)["code"] == "FAIL"


def test_platform() -> None:
    (bad,) = failures(check(Subject(FAMILIES["sm121"], "linux/amd64"), [GB10], "aarch64"))
    assert bad.message == "the image is linux/amd64, this machine is linux/arm64"


def test_overlay_of_another_family_or_capability() -> None:
    subject = Subject(FAMILIES["sm121"], "linux/arm64", overlay_families=("sm100",))
    assert failures(check(subject, [GB10], "aarch64"))[0].message == "the overlay is for sm100, not for sm121"
    subject = Subject(FAMILIES["sm100"], overlay_families=("sm100",), overlay_capabilities=((10, 0),))
    assert failures(check(subject, [GB300], "aarch64"))[0].message == "the overlay is for 10.0, this GPU is 10.3"


def test_the_cpu_family_needs_no_gpu() -> None:
    assert verdicts(check(Subject(FAMILIES["cpu"], "linux/amd64"), [], "x86_64"))["gpu"] == "PASS"
