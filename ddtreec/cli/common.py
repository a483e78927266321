"""What all commands share: errors to stderr with their exit code, Ctrl-C, a reader that went away, --debug."""

from __future__ import annotations

import functools
import io
import os
import sys
import traceback
from collections.abc import Callable
from typing import NoReturn, ParamSpec

import click

from ddtreec.cli.colour import paint
from ddtreec.core.errors import DdtreecError, Problem, SpecError, VerifyError

P = ParamSpec("P")

INTERRUPTED = 130
BUG = 70

DEBUG = "ddtreec.debug"
"""Where the context keeps whether --debug was given."""


def guarded(command: Callable[P, None]) -> Callable[P, None]:
    """The command with the project's manners: no traceback for a mistake (but with --debug), and the exit codes of
    `core.errors`.

    Data goes to stdout, everything else to stderr. A closed stdout (`| head`) ends quietly with 0; a full disk behind
    it is told.
    """

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        ready_streams()
        try:
            command(*args, **kwargs)
            sys.stdout.flush()
        except DdtreecError as error:
            fail(error.render(), error.exit_code)
        except VerifyError as error:
            fail(f"{error}\n  help: {_report('the spec')}", error.exit_code)
        except BrokenPipeError:
            _let_go_of_stdout()
            sys.exit(0)
        except KeyboardInterrupt:
            fail("interrupted", INTERRUPTED)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise  # click's own way to end
        except OSError as error:
            if error.filename is not None or sys.stdout.closed:
                _bug(error)
            _let_go_of_stdout()
            message = f"cannot write the output: {error.strerror or error}"
            fail(
                SpecError(Problem("C001", message, help="make room, or send it elsewhere")).render(),
                SpecError.exit_code,
            )
        except Exception as error:  # a bug of ours: said as such, instead of a traceback nobody asked for
            _bug(error)

    return click.option(
        "--debug",
        is_flag=True,
        expose_value=False,
        callback=remember_debug,
        help="Print tracebacks, too.",
    )(run)


def ready_streams() -> None:
    """Streams that were closed before we began (`>&-`) lead nowhere, and text that is not for a terminal is UTF-8."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: PTH123, SIM115  as long as the process
    out = sys.stdout
    if isinstance(out, io.TextIOWrapper) and not out.encoding.lower().replace("-", "").startswith("utf"):
        if out.isatty():
            out.reconfigure(errors="replace")
        else:
            out.reconfigure(encoding="utf-8")


def _let_go_of_stdout() -> None:
    """What is still buffered cannot be written any more; Python would try again on its way out."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _bug(error: Exception) -> NoReturn:
    said = f"internal error[V002]: {type(error).__name__}: {error}".rstrip(": ")
    fail(f"{said}\n  help: {_report('what --debug prints')}", BUG)


def fail(message: str, code: int) -> NoReturn:
    """Says why on stderr and leaves with `code`; before it the traceback, where --debug was given."""
    if debugging() and sys.exc_info()[0] is not None:
        traceback.print_exc()
    print(paint(message, sys.stderr), file=sys.stderr)
    sys.exit(code)


def debugging() -> bool:
    """Whether --debug was given."""
    context = click.get_current_context(silent=True)
    return bool(context and context.find_root().meta.get(DEBUG))


def remember_debug(context: click.Context, parameter: click.Parameter, value: bool) -> None:
    """Keeps --debug for `fail`."""
    if value:
        context.find_root().meta[DEBUG] = True


def _report(what: str) -> str:
    return f"this is a bug in ddtreec, not in your spec: please report it with {what}"
