"""Keys at work on letters: they are signed and sealed, verified and opened. Without keys, neither.

``cryptography`` is imported only where there are keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from fedsplit.errors import InputError
from fedsplit.remote.messages import Signature
from fedsplit.sites.letters.letter import (
    AnswerLetter,
    QuestionLetter,
    Received,
    belongs_to,
    content_of,
    digest_of,
    pack,
    unpack,
    write_letter,
)

if TYPE_CHECKING:
    from fedsplit.remote.keys import PrivateKey
    from fedsplit.remote.signatures import Signer
    from fedsplit.sites.letters.sealing import Box

MARK = b"fedsplit answer\n"
"""Precedes what a client signs, so that a signature of anything else is not one of an answer."""


class CoordinatorPost:
    """Signs and seals questions, and opens answers.

    Parameters
    ----------
    box : Path
        The file of the key to which answers are sealed.
    keys : Path or None
        The folder of the federation's keys; None without keys.

    Attributes
    ----------
    public : str
        The public key to which answers are sealed; empty without keys.
    """

    def __init__(self, box: Path, keys: Path | None) -> None:
        self.public = ""
        self._box: Box | None = None
        self._signer: Signer | None = None
        if keys is not None:
            from fedsplit.remote.signatures import Signer
            from fedsplit.sites.letters.sealing import Box

            self._signer = Signer(keys)
            self._box = Box(box)
            self.public = self._box.public

    def question(
        self, letter: QuestionLetter, asked: Mapping[str, list[bytes]], boxes: Mapping[str, str]
    ) -> bytes:
        """The file of a question.

        Parameters
        ----------
        letter : QuestionLetter
            Without its messages.
        asked : mapping of str to list of bytes
            By client, the messages for it.
        boxes : mapping of str to str
            By client, the public key to which its messages are sealed, if it has sent one.
        """
        parts = {name: pack(messages) for name, messages in asked.items()}
        if self._signer is None:
            return write_letter(replace(letter, parts=parts), Signature())
        from fedsplit.remote.signatures import QUESTION
        from fedsplit.sites.letters.sealing import seal

        for name in parts:
            if boxes.get(name):
                parts[name] = seal(parts[name], boxes[name], belongs_to(letter, name))
        letter = replace(letter, parts=parts)
        return write_letter(letter, self._signer.sign(content_of(letter), QUESTION))

    def replies(self, letter: AnswerLetter) -> list[bytes]:
        """The replies in an answer."""
        content = letter.content
        if self._box is not None:
            from fedsplit.sites.letters.sealing import seal

            content = self._box.open(content, belongs_to(letter, letter.name))
            seal(b"", letter.box, b"")  # so that the next question can be sealed to its key
        return unpack(content)


def check_answer_signature(letter: AnswerLetter, received: Received, fingerprints: str) -> None:
    """Raise InputError unless the client of an answer has signed it.

    Parameters
    ----------
    letter : AnswerLetter
    received : Received
    fingerprints : str
        Of the client's keys, as the study has them; empty without keys.
    """
    if not fingerprints:
        return
    from fedsplit.remote.keys import fingerprint, is_signature, public_line, read_public_line

    signature = received.signature
    if not signature.value:
        raise InputError("is not signed")
    try:
        key = read_public_line(signature.certificate, letter.name)
        value = bytes.fromhex(signature.value)
    except ValueError:
        raise InputError("its signature cannot be read") from None
    if public_line(key).decode("ascii") != signature.certificate:
        raise InputError("the key that signed it is not in its usual form")
    if fingerprint(key) not in fingerprints.split():
        raise InputError(f"is signed by another key than that of {letter.name} in the study")
    if not is_signature(key, value, MARK + received.content):
        raise InputError("was changed since it was signed")


class SitePost:
    """Opens questions, and signs and seals answers.

    Parameters
    ----------
    box : Path
        The file of the key to which questions are sealed.
    key : PrivateKey or None
        The client's own key; None without keys.
    """

    def __init__(self, box: Path, key: PrivateKey | None) -> None:
        self.public = ""
        self._key = key
        self._box: Box | None = None
        if key is not None:
            from fedsplit.sites.letters.sealing import Box

            self._box = Box(box)
            self.public = self._box.public

    def messages(self, letter: QuestionLetter, name: str) -> list[bytes]:
        """The messages of a question for this client."""
        part = letter.parts[name]
        if self._box is not None and letter.number > 1:
            part = self._box.open(part, belongs_to(letter, name))
        return unpack(part)

    def answer(self, letter: AnswerLetter, replies: list[bytes], public: str) -> tuple[bytes, str]:
        """The file of an answer, and the SHA-256 of what is signed in it.

        Parameters
        ----------
        letter : AnswerLetter
            Without its content.
        replies : list of bytes
        public : str
            The coordinator's key, to which they are sealed.
        """
        letter = replace(letter, content=pack(replies))
        signature = Signature()
        if self._key is not None:
            from fedsplit.remote.keys import public_line, sign
            from fedsplit.sites.letters.sealing import seal

            about = belongs_to(letter, letter.name)
            letter = replace(letter, content=seal(letter.content, public, about))
            value = sign(self._key, MARK + content_of(letter))
            signer = public_line(self._key.public_key()).decode("ascii")
            signature = Signature(value.hex(), signer)
        return write_letter(letter, signature), digest_of(content_of(letter))
