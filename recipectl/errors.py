"""The one tree of errors that a user may see. No I/O here.

Every error says what failed, on what, what was seen against what was expected, and the next step. The class decides
the exit code of the process (docs/exit-codes.md); nothing else does.
"""

from __future__ import annotations

from collections.abc import Sequence


class RecipectlError(Exception):
    """What failed, in one sentence, with the facts a person needs to act at 2 a.m.

    `what` is the sentence; `on` names the thing (a file, a recipe, a host); `seen` and `expected` are shown as a pair;
    `details` are further lines, such as all findings of a check; `next_step` is a command or an action.
    """

    exit_code = 70
    kind = "bug"

    def __init__(
        self,
        what: str,
        *,
        on: str | None = None,
        seen: object = None,
        expected: object = None,
        next_step: str | None = None,
        details: Sequence[str] = (),
    ) -> None:
        super().__init__(what)
        self.what = what
        self.on = on
        self.seen = None if seen is None else str(seen)
        self.expected = None if expected is None else str(expected)
        self.next_step = next_step
        self.details = tuple(details)

    def lines(self) -> list[str]:
        """The message as plain lines, the first one complete in itself."""
        out = [f"error[{self.kind}]: {self.what}" + (f" ({self.on})" if self.on else "")]
        out += [f"  {line}" for line in self.details]
        if self.seen is not None:
            out.append(f"  seen:     {self.seen}")
        if self.expected is not None:
            out.append(f"  expected: {self.expected}")
        if self.next_step:
            out.append(f"  next:     {self.next_step}")
        return out

    def to_json(self) -> dict[str, object]:
        """The same facts for programs (`--json`)."""
        return {
            "error": self.kind,
            "exit_code": self.exit_code,
            "what": self.what,
            "on": self.on,
            "seen": self.seen,
            "expected": self.expected,
            "details": list(self.details),
            "next": self.next_step,
        }


class UsageError(RecipectlError):
    """The command line or a setting is wrong."""

    exit_code = 2
    kind = "usage"


class RecipeError(RecipectlError):
    """A recipe or an overlay manifest breaks its format or a rule (K rules included)."""

    exit_code = 3
    kind = "recipe"


class PinError(RecipectlError):
    """Bytes are not what the lock names, or the lock is missing or stale."""

    exit_code = 4
    kind = "pin"


class LicenseError(RecipectlError):
    """A license forbids the use, or its acceptance is not on record."""

    exit_code = 5
    kind = "license"


class HubError(RecipectlError):
    """The model hub refused, failed or could not be reached."""

    exit_code = 6
    kind = "hub"


class EngineError(RecipectlError):
    """A container engine or an inference engine is missing, dead, or logged a fatal line."""

    exit_code = 7
    kind = "engine"


class GateError(RecipectlError):
    """The server is alive but not what its plan promises."""

    exit_code = 8
    kind = "gate"


class BenchError(RecipectlError):
    """The measurement is not valid."""

    exit_code = 9
    kind = "bench"


class RegressionError(RecipectlError):
    """A comparison or a frozen experiment ended against the candidate."""

    exit_code = 10
    kind = "regression"


class Interrupted(RecipectlError):
    """The user pressed Ctrl-C; `what` says what was torn down and what was kept."""

    exit_code = 130
    kind = "interrupted"
