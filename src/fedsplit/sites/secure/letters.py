"""The keys with which the sites of a study mask their answers, each signed by its site."""

from __future__ import annotations

from collections.abc import Mapping

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from fedsplit.errors import RequestError, listed
from fedsplit.remote.keys import (
    PrivateKey,
    fingerprint,
    is_signature,
    public_line,
    read_public_line,
    sign,
)
from fedsplit.sites.secure.encoding import unambiguous
from fedsplit.sites.secure.protocol import KeyLetter

PURPOSE = "fedsplit key of a study"
"""Part of what is signed, so that a signature of anything else is not one of a letter."""


def write_letter(
    study: str, name: str, own: X25519PrivateKey, removal: bool, signer: PrivateKey
) -> KeyLetter:
    """The letter with a site's key for a study.

    Parameters
    ----------
    study : str
        The hash of the study.
    name : str
        Of the site.
    own : X25519PrivateKey
        Its key for this study, which never leaves it.
    removal : bool
        Whether its owner allows that the study goes on without it.
    signer : PrivateKey
        The long-term key of the site, whose fingerprint its partners know.
    """
    key = own.public_key().public_bytes_raw().hex()
    content = _content(study, name, key, removal)
    line = public_line(signer.public_key()).decode("ascii")
    return KeyLetter(name, key, removal, line, sign(signer, content).hex())


def check_letters(study: str, members: Mapping[str, str], letters: Mapping[str, KeyLetter]) -> None:
    """Raise RequestError unless these are the letters of all sites of a study.

    Parameters
    ----------
    study : str
        The hash of the study.
    members : mapping of str to str
        The sites of the study, with the fingerprints of their long-term keys, separated by spaces
        where one has several: the owner has compared them.
    letters : mapping of str to KeyLetter
        By site.

    Raises
    ------
    RequestError
        If a letter is missing, there is one too many, or one was not written by its site for this
        study.
    """
    if set(letters) != set(members):
        raise RequestError(
            f"keys of {listed(sorted(letters))} came, the study is of {listed(sorted(members))}"
        )
    for name in sorted(letters):
        _check(study, name, members[name], letters[name])
    if len({letter.key for letter in letters.values()}) < len(letters):
        raise RequestError("two sites have the same key of the study")


def _check(study: str, name: str, fingerprints: str, letter: KeyLetter) -> None:
    wrong = RequestError(f"the key of {name} for the study cannot be read")
    try:
        signer = read_public_line(letter.signer, name)
        key = X25519PublicKey.from_public_bytes(bytes.fromhex(letter.key))
        signature = bytes.fromhex(letter.signature)
    except ValueError:
        raise wrong from None
    if fingerprint(signer) not in fingerprints.split():
        raise RequestError(
            f"the key of {name} for the study is signed by another key than the one that its "
            "partners approved"
        )
    # in its only form, so that two letters with the same key are seen to have it
    if letter.name != name or letter.key != key.public_bytes_raw().hex():
        raise wrong
    content = _content(study, name, letter.key, letter.removal)
    if not is_signature(signer, signature, content):
        raise RequestError(
            f"the signature of the key of {name} does not belong to it or to this study"
        )


def _content(study: str, name: str, key: str, removal: bool) -> bytes:
    return unambiguous(PURPOSE, study, name, key, "removal" if removal else "no removal")
