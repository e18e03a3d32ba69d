"""The boot of an engine as its log tells it: phases with their times, the first fatal line, the last line. PURE."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from recipectl.serving.signature_table import Phase
from recipectl.serving.signatures import classify, parse

ORDER: tuple[Phase, ...] = ("start", "weights", "drafter", "compile", "capture", "kv", "ready")
_NAMES: dict[Phase, str] = {
    "start": "starting", "weights": "loading weights", "drafter": "loading drafter", "compile": "compiling",
    "capture": "capturing graphs", "kv": "making the KV cache", "ready": "ready",
}  # fmt: skip


@dataclass
class Boot:
    """Feed it log lines with their times (seconds on one clock, from the launch).

    Phases go forward only, except that weights, compile and capture may alternate while a drafter is loaded after its
    target; the time of a phase is the sum of its stretches.
    """

    budgets: Mapping[str, int] = field(default_factory=dict)
    phase: Phase = "start"
    last_line: str = ""
    fatal: str | None = None
    fatal_at: float | None = None
    elapsed: dict[str, float] = field(default_factory=dict)
    _since: float = 0.0

    def feed(self, raw: str, now: float) -> None:
        """One more log line at time `now`."""
        text = parse(raw).text.strip()
        if text:
            self.last_line = text.rsplit("\r", 1)[-1][:120]
        found = classify(raw)
        if found is None:
            return
        if found.kind in ("fatal", "symptom"):
            if self.fatal is None:
                self.fatal, self.fatal_at = raw.rstrip(), now
        elif found.phase is not None and self.phase not in (found.phase, "ready"):
            if found.phase == "start" or (self.phase == "drafter" and found.phase == "weights"):
                return  # a drafter has weights too; engine processes introduce themselves late
            self._close(now)
            self.phase, self._since = found.phase, now

    def _close(self, now: float) -> None:
        self.elapsed[self.phase] = round(self.elapsed.get(self.phase, 0.0) + now - self._since, 3)

    def finish(self, now: float) -> dict[str, float]:
        """Seconds per phase up to `now`, for the receipt."""
        self._close(now)
        self._since = now
        return dict(self.elapsed)

    def over_budget(self, now: float) -> str | None:
        """A sentence if the present phase has used more than its budget."""
        budget = self.budgets.get(self.phase)
        spent = self.elapsed.get(self.phase, 0.0) + now - self._since
        if budget is None or spent <= budget:
            return None
        return f"{_NAMES[self.phase]} takes {spent:.0f} s, its budget is {budget} s"

    def headline(self, now: float) -> str:
        """`phase, elapsed, last log line`, for the progress display."""
        return f"{_NAMES[self.phase]} | {now:.0f} s | {self.last_line}"
