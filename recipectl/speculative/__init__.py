"""The speculative side of a lane: what the engine is told, and every rule about K with its evidence. PURE."""

from recipectl.speculative.check import check, refuse
from recipectl.speculative.compose import capture_sizes, compose, graphs_off, own_sizes
from recipectl.speculative.overrides import parse_set, with_k, with_overrides
from recipectl.speculative.table import RULES, Rule
from recipectl.speculative.verdict import RuleVerdict, Verdict

__all__ = [
    "RULES",
    "Rule",
    "RuleVerdict",
    "Verdict",
    "capture_sizes",
    "check",
    "compose",
    "graphs_off",
    "own_sizes",
    "parse_set",
    "refuse",
    "with_k",
    "with_overrides",
]
