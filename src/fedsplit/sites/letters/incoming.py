"""Questions as they arrive at a client: those that the coordinator did not sign are refused."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from fedsplit.errors import InputError
from fedsplit.sites.letters.letter import QuestionLetter, Received, read_letter
from fedsplit.sites.service import ALLOWED
from fedsplit.sites.studies.credentials import Credentials
from fedsplit.sites.studies.study import STUDY_BYTES, read_study


def read_question(
    path: Path, credentials: Credentials | None, name: str
) -> tuple[QuestionLetter, Received]:
    """The question in a file; raises InputError unless the coordinator of its study signed it.

    Parameters
    ----------
    path : Path
    credentials : Credentials or None
        None without keys.
    name : str
        Of the client, whose key must be that of the study.
    """
    letter, received = read_letter(path, QuestionLetter)
    try:
        coordinator = _coordinator(letter.study)
        if credentials is not None:
            from fedsplit.remote.signatures import QUESTION, check_signature

            check_signature(
                received.content, received.signature, coordinator, credentials.ca, QUESTION
            )
        elif coordinator:
            raise InputError("is of a study with keys: give --key and --ca")
        members = read_study(letter.study, ALLOWED).members
        if credentials is not None and credentials.fingerprint not in members.get(name, "").split():
            raise InputError(
                f"the study has another key of {name} than the one in --key, or has no such client"
            )
        if not re.fullmatch("[0-9a-f]{32}", letter.run) or letter.number < 1:
            raise InputError("has no number, or belongs to no run")
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    return letter, received


class _Coordinated(msgspec.Struct):
    """The field of a study that says who signs."""

    coordinator: str


def _coordinator(study: bytes) -> str:
    """The fingerprint of the key that signs, of a study that was not checked yet."""
    if len(study) > STUDY_BYTES:
        raise InputError(f"its study is larger than {STUDY_BYTES} bytes")
    try:
        return msgspec.json.decode(study, type=_Coordinated).coordinator
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise InputError("the study in it cannot be read") from None
