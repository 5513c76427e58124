"""``fedsplit answer``: a client's side of a study by files."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedsplit import files
from fedsplit.commands.approving import has_terminal, state_folder
from fedsplit.commands.client_options import Data, Decimal, Folder, Na, Name, Privacy, SiteKeys
from fedsplit.commands.client_view import View
from fedsplit.commands.keys import check_extra
from fedsplit.commands.options import take, with_fields
from fedsplit.commands.owner import Owner
from fedsplit.data.reading import Reading, read_codes
from fedsplit.errors import InputError
from fedsplit.sites.events import Event
from fedsplit.sites.studies.hashes import read_whole_hash, short
from fedsplit.sites.studies.store import Studies

if TYPE_CHECKING:
    from fedsplit.sites.letters.correspondence import Correspondence
    from fedsplit.sites.letters.letter import QuestionLetter, Received


@with_fields(
    *(each for each in fields(Privacy) if each.name != "max_rounds"),
    *fields(SiteKeys),
)
def answer_command(
    question: Annotated[
        Path,
        typer.Argument(
            metavar="QUESTION", help="File that the coordinator has sent.", show_default=False
        ),
    ],
    data: Data,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="File for the answer; by default answer-N-NAME.fedsplit here."
        ),
    ] = None,
    name: Name = None,
    na: Na = "",
    decimal: Decimal = ".",
    folder: Folder = None,
    **chosen: Any,
) -> None:
    """Answer a question of a study by files, with rows that stay on this machine.

    The first question of a study brings the study itself, which has to be approved: at the
    terminal, by fedsplit approve, or with --approve. The answer is one file for the coordinator,
    who alone can read it; a copy of what is in it is kept for you in the folder of the client's
    state. The same question can be answered again until the coordinator has used the answer.

    The last file of a study brings its result, which is printed.

    Exit status: 0 done; 1 the study is not approved, or something is refused by the rules, which
    the answer says; 2 bad input.
    """
    check_extra()
    from fedsplit.channels.folder_lock import alone
    from fedsplit.sites.letters.incoming import read_question

    keys = take(SiteKeys, chosen)
    _check(keys)
    privacy = take(Privacy, chosen)
    if privacy.approve not in ("ask", "always"):
        read_whole_hash(privacy.approve)
    name = keys.name(name, data)
    letter, received = read_question(question, keys.credentials(), name)
    folder = (folder or state_folder() / name).absolute()
    path = out or Path(f"answer-{letter.number}-{name}.fedsplit")
    if not letter.last:
        _check_out(path, folder, (question, Path(data), *filter(None, (keys.key, keys.ca))))
    view = View(str(folder), True, "answer", redraws=False)
    with alone(folder):
        course = _course(question, folder, name, letter, received, keys)
        if letter.last and course.again:
            view(Event("end", course.result(), course.study))
            return
        reading = Reading(tuple(read_codes(na)), decimal)
        site = privacy.site(name, data, folder, reading, keys.credentials(), view)
        if not letter.last and not site.rules.refuse:  # strict clients have copies of them
            _use_rows(course, data)
        owner = Owner(site, Studies(folder), privacy.approve == "ask" and has_terminal())
        owner.renew(course)
        replies = owner.replies(course)
        if letter.last:
            if not _complete(course, replies):
                raise typer.Exit(1)
            course.close()
            return
        files.write_durably(path, course.answer(replies))
    complete = _complete(course, replies)
    _show(course, path, complete)
    if not complete:
        raise typer.Exit(1)


def _check_out(path: Path, folder: Path, others: Iterable[Path]) -> None:
    """Raise InputError unless an answer can be written to a file, which goes to the coordinator.

    Parameters
    ----------
    path : Path
        The file.
    folder : Path
        Of the client's state, with keys, and numbers before they are masked: not to be sent along.
    others : iterable of Path
        Files that the command reads.
    """
    if path.is_dir():
        raise InputError(f"--out {path}: is a folder: give the name of a file")
    if not path.parent.is_dir():
        raise InputError(f"--out {path}: there is no folder {path.parent}")
    files.check_writable(path.parent)
    if path.resolve().is_relative_to(folder.resolve()):
        raise InputError(
            f"--out {path}: is in the folder of the client's state, which stays here: choose "
            "another one"
        )
    if path.exists() and any(other.exists() and path.samefile(other) for other in others):
        raise InputError(f"--out {path}: is a file that this command reads: choose another name")


def _course(
    question: Path,
    folder: Path,
    name: str,
    letter: QuestionLetter,
    received: Received,
    keys: SiteKeys,
) -> Correspondence:
    """The run that a question belongs to; its file is named in errors."""
    from fedsplit.remote.keys import read_private_key
    from fedsplit.sites.letters.correspondence import Correspondence

    own = None
    if keys.key is not None:
        own = read_private_key(keys.key)
    try:
        return Correspondence(folder, name, letter, received, own)
    except InputError as error:
        raise InputError(f"{question}: {error}") from None


def _use_rows(course: Correspondence, data: str) -> None:
    """Raise InputError if the answers before came from another file, or from other rows in it."""
    path = Path(data)
    if not path.is_file():  # such as a database
        return
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    try:
        course.use_rows(digest)
    except InputError as error:
        raise InputError(f"{data}: {error}") from None


def _show(course: Correspondence, path: Path, complete: bool) -> None:
    """Print where the answer is, and whether every message was answered."""
    outcome = "is answered"
    if not complete:
        outcome = "is not answered, or not all of it, and the answer says so"
    typer.echo(
        f"question {course.number} of the study {short(course.study[:16])} … {outcome}\n"
        f"a copy for you: {course.copy}\nfor the coordinator:",
        err=True,
    )
    typer.echo(str(path))


def _check(keys: SiteKeys) -> None:
    """Raise InputError unless a client has either keys or none."""
    if keys.insecure and (keys.key is not None or keys.ca is not None):
        raise InputError("--insecure uses no keys: leave out --key and --ca, or --insecure")
    if not keys.insecure and (keys.key is None or keys.ca is None):
        raise InputError(
            "give --key and --ca: the question is verified and the answer is signed with them; or "
            "--insecure for a test on one machine"
        )
    for option, path in (("key", keys.key), ("ca", keys.ca)):
        if path is not None and not path.is_file():
            raise InputError(f"--{option} {path}: there is no such file")


def _complete(course: Correspondence, replies: list[bytes]) -> bool:
    """Whether every message was answered."""
    answered = all(reply.startswith((b"answer", b"unprepared")) for reply in replies)
    return answered and len(replies) == len(course.messages)
