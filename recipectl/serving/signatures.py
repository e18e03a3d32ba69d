"""What lines of an engine's log mean: a table of signatures, and the root cause of a failed boot. PURE.

The last traceback line of a vLLM log is almost never the cause: the API server ends with "Engine core initialization
failed. See root cause above", and a worker's death surfaces as EngineDeadError two processes later. So a line is
matched against `SIGNATURES`; a cause outranks a symptom, and the earliest cause wins.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from recipectl.serving.signature_table import SIGNATURES, Signature

# `(EngineCore pid=745) ERROR 11-29 16:02:05 [core.py:1510] text`; also `(Worker_TP1 pid=3) ...` and no prefix at all.
_PREFIX = re.compile(
    r"^(?:\((?P<process>[\w.\- ]+?)(?: pid=\d+)?\) )?(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL) "
    r"\d\d-\d\d \d\d:\d\d:\d\d \[[^\]]*\] ?(?P<text>.*)$"
)
_EXCEPTION = re.compile(r"^(?P<type>[A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit))(?::(?: (?P<what>.*))?)?$")
# Exceptions that only pass on the news of another process.
_MESSENGERS = re.compile(
    r"EngineDeadError|Engine core initialization failed|Worker failed with error|SystemExit|KeyboardInterrupt"
    r"|CancelledError|EngineGenerateError"
)


@dataclass(frozen=True)
class Line:
    """One log line without its prefix. `level` is None for what bypassed the logger (tracebacks, progress bars)."""

    level: str | None
    process: str | None
    text: str


@dataclass(frozen=True)
class Diagnosis:
    """Why an engine failed. `line` is the log line that says so, `number` its place (from 1), `name` the signature."""

    name: str
    meaning: str
    line: str
    number: int
    fix: str | None
    source: str

    def details(self) -> list[str]:
        """For the details of an error message."""
        return [f"cause: {self.meaning}", f"log line {self.number}: {self.line}"]


def parse(raw: str) -> Line:
    """Split a log line into process, level and text."""
    match = _PREFIX.match(raw)
    if match is None:
        return Line(None, None, raw.rstrip())
    return Line(match["level"], match["process"], match["text"].rstrip())


def classify(raw: str) -> Signature | None:
    """The signature of one log line, or None. Warnings and notices never count as fatal."""
    line = parse(raw)
    # Four spaces: a line of source code in a traceback, which may quote any message.
    loud = line.level in (None, "ERROR", "CRITICAL") and not line.text.startswith("    ")
    for signature in SIGNATURES:
        if signature.kind in ("fatal", "symptom") and not (loud or signature.any_level):
            continue
        if signature.pattern.search(line.text):
            return signature
    return None


def diagnose(lines: Iterable[str]) -> Diagnosis | None:
    """The root cause in a log: the earliest fatal signature, else the earliest exception of the process that raised
    it, else the earliest symptom. None if nothing in the log is wrong."""
    symptom: Diagnosis | None = None
    raised: Diagnosis | None = None
    for number, raw in enumerate(lines, 1):
        found = classify(raw)
        if found is not None and found.kind == "fatal":
            return _from(found, raw, number)
        if found is not None and found.kind == "symptom":
            symptom = symptom or _from(found, raw, number)
        elif raised is None and found is None:
            raised = _exception(raw, number)
    return raised or symptom


def _from(signature: Signature, raw: str, number: int) -> Diagnosis:
    return Diagnosis(
        signature.name, signature.meaning, parse(raw).text.strip()[:400], number, signature.fix, signature.source
    )


def _exception(raw: str, number: int) -> Diagnosis | None:
    line = parse(raw)
    if line.level not in (None, "ERROR", "CRITICAL"):
        return None
    match = _EXCEPTION.match(line.text.strip())
    if match is None or _MESSENGERS.search(line.text):
        return None
    return Diagnosis(
        "exception",
        f"the engine raised {match['type']}, which no signature explains yet",
        line.text.strip()[:400],
        number,
        "read the traceback above that line in the engine's log",
        "the log itself",
    )
