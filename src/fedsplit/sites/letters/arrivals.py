"""Answers as they arrive at the coordinator: those that cannot be used are named and refused."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from fedsplit.errors import InputError
from fedsplit.remote.messages import answer_type_of, read_reply, read_request
from fedsplit.sites.letters.letter import AnswerLetter, QuestionLetter, Received, read_letter
from fedsplit.sites.letters.post import check_answer_signature
from fedsplit.sites.letters.study_folder import StudyFolder
from fedsplit.sites.service import ALLOWED
from fedsplit.sites.studies.hashes import short
from fedsplit.sites.studies.study import Study


def read_answer(path: Path, folder: StudyFolder, study: Study) -> tuple[AnswerLetter, Received]:
    """An answer to the last question of a study; raises InputError for any other file.

    Parameters
    ----------
    path : Path
    folder : StudyFolder
        Of the study.
    study : Study
    """
    letter, received = read_letter(path, AnswerLetter)
    try:
        _check(letter, received, folder, study)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    return letter, received


def check_readable(
    path: Path, letter: AnswerLetter, asked: Sequence[bytes], replies: Sequence[bytes]
) -> None:
    """Raise InputError unless every reply of an answer is one, or says that something is refused.

    Parameters
    ----------
    path : Path
        Of the file.
    letter : AnswerLetter
    asked : sequence of bytes
        The messages.
    replies : sequence of bytes
        The reply to each, up to one after which there was nothing to reply.
    """
    for message, reply in zip(asked, replies, strict=False):
        request = read_request(message, ALLOWED)
        outcome = read_reply(reply, answer_type_of(request), 0.0).outcome
        if outcome not in ("answer", "refused", "unprepared"):
            raise InputError(
                f"{path}: its reply to {request.question.name()} cannot be read: {letter.name} has "
                "to answer the question again"
            )


def _check(letter: AnswerLetter, received: Received, folder: StudyFolder, study: Study) -> None:
    name = letter.name
    if letter.hash != study.hash:
        raise InputError(
            f"belongs to the study {short(letter.hash[:16])} …, this is {short(study.hash[:16])} …"
        )
    if name not in study.members:
        raise InputError(f"is of {name[:64]!r}, who is no member of the study")
    check_answer_signature(letter, received, study.members[name])
    keys = folder.run().keys
    if keys is not None:
        _check_key(Path(keys), name, study.members[name])
    number = folder.number
    question, asked = read_letter(folder.question(number), QuestionLetter)
    if letter.run != question.run:
        raise InputError("belongs to another run of the same study, in another folder")
    if letter.number != number:
        raise InputError(_out_of_order(letter, received, folder))
    if letter.question != asked.digest:
        raise InputError(f"answers another question {number} than {folder.question(number)}")
    if name not in question.parts:
        raise InputError(f"is of {name}, who was not asked in question {number}")
    if name in folder.left_out(number):
        raise InputError(f"is too late: the study goes on without {name} since question {number}")


def _check_key(keys: Path, name: str, fingerprints: str) -> None:
    """Raise InputError if a client has left the federation since the study began.

    Parameters
    ----------
    keys : Path
        The folder of the federation's keys.
    name : str
        Of the client.
    fingerprints : str
        Of its keys in the study.
    """
    from fedsplit.remote.key_folder import entries  # needs cryptography

    found = [entry for entry in entries(keys) if entry.name == name]
    if not found or set(found[0].fingerprints).isdisjoint(fingerprints.split()):
        raise InputError(f"is of {name}, whose key was revoked")
    ends = found[0].ends
    if ends is not None and ends < datetime.now(UTC):
        raise InputError(
            f"is of {name}, whose certificate expired on {ends:%Y-%m-%d}: make a new one with "
            f"fedsplit keys {keys} --renew {name}"
        )


def _out_of_order(letter: AnswerLetter, received: Received, folder: StudyFolder) -> str:
    number = folder.number
    if letter.number > number:
        return f"answers question {letter.number}, but the last question is {number}"
    taken = folder.taken(letter.number).get(letter.name)
    if taken is not None and taken.number == letter.number and taken.answer == received.digest:
        return f"was combined before, in round {letter.number}; the study is in round {number}"
    return f"is too late: it answers question {letter.number}, the study is in round {number}"
