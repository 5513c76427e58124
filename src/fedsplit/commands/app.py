"""The command ``fedsplit``: results on stdout, progress and errors on stderr."""

from __future__ import annotations

import io
import os
import sys
from typing import Annotated

import typer

from fedsplit.commands.compare import compare_command
from fedsplit.commands.fit import fit_command
from fedsplit.commands.help import Command
from fedsplit.commands.interrupts import Terminated, raise_on_sigterm
from fedsplit.commands.keys import keys_app
from fedsplit.commands.reproduce import report_command, reproduce_command
from fedsplit.commands.study import study_app
from fedsplit.commands.terminal import print_error, print_warnings
from fedsplit.errors import InputError, NoMinimiser, TooFewClients
from fedsplit.loop.result import Diverged
from fedsplit.methods import METHODS
from fedsplit.paper.experiments import EXPERIMENTS
from fedsplit.version import __version__

# Newer versions of Typer bring their own copy of click, older ones use the package: this is the
# usage error of either.
UsageError: type[Exception] = typer.BadParameter.__mro__[1]

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"max_content_width": 100},
)
app.command("fit", cls=Command)(fit_command)
app.command("compare", cls=Command, epilog=f"Methods: {', '.join(METHODS)}.")(compare_command)
app.command(
    "reproduce",
    cls=Command,
    epilog=f"Figures: {', '.join(EXPERIMENTS)}; in a checkout also open, open-async, …",
)(reproduce_command)
app.command("report", cls=Command)(report_command)
app.add_typer(study_app, name="study")
app.add_typer(keys_app, name="keys")


@app.callback(invoke_without_command=True)
def _describe(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Federated convex optimisation: the pooled answer from clients that never pool their data."""
    if version:
        typer.echo(f"fedsplit {__version__}")
    elif context.invoked_subcommand is None:
        typer.echo(context.get_help())


def run(arguments: list[str]) -> int:
    """Run the command and return its exit status; every error is one line on stderr."""
    try:
        return int(app(arguments, prog_name="fedsplit", standalone_mode=False) or 0)
    except UsageError as error:
        text = error.format_message()  # type: ignore[attr-defined]  # click's name
        return _fail(f"{text} (see fedsplit --help)")
    except (InputError, NoMinimiser) as error:
        return _fail(error)
    except (Diverged, TooFewClients) as error:
        return _fail(error, status=1)
    except MemoryError:
        return _fail("not enough memory: choose a smaller problem")
    except BrokenPipeError:
        return 0
    except (OSError, ImportError) as error:
        return _fail(error)
    except Exception as error:  # users are not shown stack traces
        return _fail(
            f"a fault of fedsplit itself, please report it ({type(error).__name__}: {error})",
            status=1,
        )
    except (typer.Abort, KeyboardInterrupt):
        return 130
    except Terminated:
        return 143


def _fail(error: Exception | str, status: int = 2) -> int:
    print_error(error)
    return status


def main() -> None:
    """Run the command line of this process, and exit with its status."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A terminal that cannot show κ still gets its table.
            stream.reconfigure(errors="replace")
    raise_on_sigterm()
    print_warnings()
    status = run(sys.argv[1:])
    try:
        sys.stdout.flush()
    except BrokenPipeError:  # the reader, such as head, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(status)
