"""The command ``fedsplit``: results on stdout, progress and errors on stderr."""

from __future__ import annotations

import io
import os
import sys
from importlib import import_module
from typing import Annotated, Any

import typer

import fedsplit as fs
from fedsplit.commands.help import Command, Group, UsageError
from fedsplit.commands.interrupts import Terminated, raise_on_sigterm
from fedsplit.commands.terminal import print_error, print_warnings
from fedsplit.errors import InputError, NoMinimiser, NotAuthorised, TooFewClients

COMMANDS = {
    "fit": "Fit one regression over clients that keep their rows, and print the pooled table.",
    "site": "Answer for an organisation's rows: studies, decisions, and the record.",
    "study": "Studies: what a coordinator computes.",
    "keys": "The keys and certificates of a federation.",
    "compare": "Run several methods on one problem, and print the rounds that each needs.",
    "reproduce": "Run the paper's experiments at full size, and check its claims.",
    "report": "Write the page of saved results again, without computing anything.",
}
"""What each does, in the words of its own help. Each is a module of this folder, with a Typer
application ``NAME_app`` that is imported when it is used: some need extras."""


class Commands(Group):
    """All commands; to run one, or to print the version, does not import the others."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f"fedsplit.commands.{cmd_name}")
        return typer.main.get_command(getattr(module, f"{cmd_name}_app"))

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        known: Any = {name: Command(name, help=text) for name, text in COMMANDS.items()}
        group = Group(commands=known, params=self.params)
        return group.shell_complete(typer.Context(group), incomplete)

    def short_texts(self, ctx: Any) -> list[tuple[str, str]]:
        return list(COMMANDS.items())


app = typer.Typer(cls=Commands, rich_markup_mode=None, pretty_exceptions_enable=False)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"fedsplit {fs.__version__}")
        raise typer.Exit


@app.callback()
def _describe(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version.", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Federated convex optimisation: the pooled answer from clients that never pool their data.

    Example: fedsplit fit site_*.csv --formula "visits ~ age + C(plan)" --family poisson
    """


def run(arguments: list[str]) -> int:
    """Run the command and return its exit status; every error is one line on stderr."""
    try:
        return int(app(arguments, prog_name="fedsplit", standalone_mode=False) or 0)
    except UsageError as error:
        text = error.format_message().rstrip(".")  # type: ignore[attr-defined]  # click's name
        path = error.ctx.command_path  # type: ignore[attr-defined]  # the same
        return _fail(f"{text} (see {path} --help)")
    except NotAuthorised as error:
        return _fail(error, status=75)
    except MemoryError:
        return _fail("not enough memory: choose a smaller problem")
    except BrokenPipeError:
        return 0
    except (InputError, NoMinimiser, OSError, ImportError) as error:
        return _fail(error)
    except (TooFewClients, fs.Diverged) as error:
        return _fail(error, status=1)
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
