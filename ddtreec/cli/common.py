"""What all commands share: errors to stderr with their exit code, Ctrl-C, a reader that went away."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from typing import ParamSpec

from ddtreec.core.errors import DdtreecError, VerifyError

P = ParamSpec("P")

INTERRUPTED = 130


def guarded(command: Callable[P, None]) -> Callable[P, None]:
    """The command with the project's manners: no traceback for a mistake, and the exit codes of `core.errors`.

    Data goes to stdout, everything else to stderr. A closed stdout (`| head`) ends quietly with 0.
    """

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            command(*args, **kwargs)
            sys.stdout.flush()
        except DdtreecError as error:
            fail(error.render(), error.exit_code)
        except VerifyError as error:
            fail(f"{error}\n  help: this is a bug in ddtreec, not in your spec: please report it with the spec",
                 error.exit_code)  # fmt: skip
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(0)
        except KeyboardInterrupt:
            fail("interrupted", INTERRUPTED)

    return run


def fail(message: str, code: int) -> None:
    """Says why on stderr and leaves with `code`."""
    print(message, file=sys.stderr)
    sys.exit(code)
