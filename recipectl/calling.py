"""One call of a verb, from settings and console to an exit code: the one place where errors become messages."""

from __future__ import annotations

import errno
import importlib
import os
import signal
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from recipectl import __version__
from recipectl.errors import Interrupted, RecipectlError, UsageError

if TYPE_CHECKING:  # `--help` needs neither
    from recipectl.console import Console
    from recipectl.settings import Settings

ROOT_OPTIONS = ("such option: --recipes", "such option: --quiet", "such option: -q", "such option: --version")
# What only the machine can do to us; any other OSError that arrives here is a case that somebody forgot.
_REFUSED = {
    errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EMFILE,
    errno.ENFILE, errno.ENAMETOOLONG,
}  # fmt: skip


def call(
    verb: str, options: Mapping[str, Any], *, json_mode: bool = False, quiet: bool = False, recipes: Path | None = None
) -> int:
    """Run `recipectl.commands.<verb>.run`; the exit code."""
    from recipectl.console import Console, columns
    from recipectl.settings import load

    console = Console(json_mode=json_mode, quiet=quiet, width=columns(sys.stdout, os.environ))
    console.hide(os.environ.get("HF_TOKEN"))
    # `timeout`, systemd and a closed terminal must clean up exactly as Ctrl-C does.
    for name in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(name, _interrupt)
    settings = None
    try:
        _refuse_empty(options)
        settings = load().with_flags(json=json_mode, quiet=quiet)
        if recipes is not None:
            settings = settings.with_flags(recipes_dirs=(recipes, *settings.recipes_dirs))
        module = importlib.import_module(f"recipectl.commands.{verb}")
        code = int(module.run(settings, console, **options))
    except KeyboardInterrupt as error:
        code = _told(console, Interrupted(f"stopped by {str(error) or 'Ctrl-C'}"))
    except RecipectlError as error:
        code = _told(console, error)
    except Exception as error:  # noqa: BLE001 - the one place where a bug becomes exit code 70 and a report
        code = _told(console, _environment(settings, error) or _bug(console, settings, error))
    if console.unwritten is not None:
        lost = unwritten(console.unwritten)
        return code or lost
    _silence_if_gone()
    return code


def _interrupt(number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt(signal.Signals(number).name)


def _refuse_empty(options: Mapping[str, Any]) -> None:
    """`pull "$NAME"` with NAME unset must not mean the default recipe."""
    for option, value in options.items():
        if value == "" or (isinstance(value, list) and "" in value):
            raise UsageError(
                f"{option.strip('_')} is empty", seen='""', expected="a value, or nothing at all",
                next_step="see whether a variable of your script is unset",
            )  # fmt: skip


def unwritten(error: OSError) -> int:
    """Say on stderr that stdout did not take the answer; the exit code."""
    from recipectl.console import Console

    _silence_if_gone()
    Console().error(
        UsageError(
            "the answer could not be written", on="stdout", seen=error.strerror,
            next_step="make room there, or send the output elsewhere",
        )
    )  # fmt: skip
    return UsageError.exit_code


def wrong_line(message: str, asked: str, argv: Sequence[str]) -> int:
    """Tell what the parser refuses in a command line, of which it understood `asked`; the exit code."""
    from recipectl.console import Console

    if not argv:  # then the message is the help
        sys.stderr.write(message + "\n")
        return UsageError.exit_code
    next_step = f"{asked} -h"
    if asked != "recipectl" and any(option in message for option in ROOT_OPTIONS):
        next_step = f"put it before the verb: recipectl {message.rpartition(' ')[2]} ..."
    said = message.replace("Value error, ", "").rstrip(".")
    error = UsageError(said[:1].lower() + said[1:], next_step=next_step)
    Console(json_mode="--json" in argv).error(error)
    return UsageError.exit_code


def _told(console: Console, error: RecipectlError) -> int:
    console.error(error)
    if os.environ.get("RECIPECTL_DEBUG") == "1":
        traceback.print_exc()
    return error.exit_code


def _silence_if_gone() -> None:
    """What could not be written still lies in the buffer; the interpreter's own flush must not fail on it again."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _environment(settings: Settings | None, error: Exception) -> UsageError | None:
    """An error that the machine around us made: a folder, a disk, a right. None if it is a bug of ours."""
    if not isinstance(error, OSError):
        return None
    if settings is not None and (own := _own_folder(settings, error)):
        return own
    if not _working_folder():
        return UsageError("the working folder no longer exists", next_step="cd to a folder that does, and try again")
    if error.errno in _REFUSED:
        return UsageError(
            "this machine refuses a file", on=error.filename, seen=error.strerror,
            next_step="make room (`df`)" if error.errno in (errno.ENOSPC, errno.EDQUOT) else None,
        )  # fmt: skip
    return None


def _own_folder(settings: Settings, error: OSError) -> UsageError | None:
    """A state, cache or data folder that the machine does not let us use is a wrong setting, not a bug."""
    if not isinstance(error.filename, str):
        return None
    for variable, folder in (
        ("RECIPECTL_STATE", settings.state_dir),
        ("RECIPECTL_CACHE", settings.cache_dir),
        ("RECIPECTL_DATA", settings.data_dir),
    ):
        # The folder itself, one above it, or, if it is a file, what was to lie in it.
        at, usable = Path(error.filename), folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)
        if not usable and (at.is_relative_to(folder) or folder.is_relative_to(at)):
            return UsageError(
                "a folder of recipectl cannot be used", on=str(folder), seen=f"{error.strerror}: {at}",
                expected="a folder that can be written", next_step=f"set {variable} to another folder",
            )  # fmt: skip
    return None


def _working_folder() -> bool:
    try:
        Path.cwd()
    except OSError:
        return False
    return True


def _bug(console: Console, settings: Settings | None, error: Exception) -> RecipectlError:
    from recipectl.fsio import write_atomic

    text = f"recipectl {__version__}, python {sys.version.split()[0]}\n\n{traceback.format_exc()}"
    name = f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{os.getpid()}.txt"
    where = "nowhere: the state directory cannot be written"
    if settings is not None:
        path = settings.state_dir / "crashes" / name
        try:
            write_atomic(path, console.redact(text), mode=0o600)
            where = str(path)
        except OSError:  # the report of a bug must not hide it behind another
            pass
    return RecipectlError(
        f"this is a bug in recipectl: {type(error).__name__}: {error}",
        details=[f"the traceback is in {where}"],
        next_step="report it with that file; RECIPECTL_DEBUG=1 prints the traceback",
    )
