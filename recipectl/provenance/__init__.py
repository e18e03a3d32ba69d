"""What a recipe is made of, under which licenses and from whom. PURE: gathered once, told in several forms."""

from recipectl.provenance.gather import Notes, Part, gather, lanes_of
from recipectl.provenance.tell import UNKNOWN, block, labels, lines, markdown, notice, summary

__all__ = [
    "UNKNOWN",
    "Notes",
    "Part",
    "block",
    "gather",
    "labels",
    "lanes_of",
    "lines",
    "markdown",
    "notice",
    "summary",
]
