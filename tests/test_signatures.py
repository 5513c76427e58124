"""Signatures of a coordinator: whose are taken, and what a refusal says."""

from pathlib import Path

import pytest

from fedsplit.errors import InputError
from fedsplit.remote.issuing import make_keys
from fedsplit.remote.messages import Signature
from fedsplit.remote.signatures import Signer, check_signature


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("keys")
    for name in ("ours", "theirs"):
        make_keys(folder / name, ["a"], ["127.0.0.1"], 2)
    return folder


def test_a_study_is_signed_by_the_coordinator_of_the_federation_alone(folder: Path) -> None:
    ours, theirs = Signer(folder / "ours"), Signer(folder / "theirs")
    ca = (folder / "ours" / "ca.crt").read_bytes()
    content = b"a study"
    signed = ours.sign(content)
    check_signature(content, signed, ours.fingerprint, ca)
    server = (folder / "ours" / "server.crt").read_text(encoding="ascii")
    for words, signature, who, what in (
        (content, Signature(), ours.fingerprint, "is not signed"),
        (b"another", signed, ours.fingerprint, "does not belong to the study"),
        (content, signed, theirs.fingerprint, "names another coordinator"),
        (content, theirs.sign(content), theirs.fingerprint, "another authority vouches for"),
        (content, Signature(signed.value, server), ours.fingerprint, "is not the coordinator's"),
        (content, Signature("zz", "-"), ours.fingerprint, "cannot be read"),
        (content, Signature("00" * 64, signed.certificate), ours.fingerprint, "does not belong"),
    ):
        with pytest.raises(InputError, match=what):
            check_signature(words, signature, who, ca)


def test_a_folder_without_the_coordinators_key_is_refused(folder: Path) -> None:
    with pytest.raises(InputError, match=r"coordinator.key is missing"):
        Signer(folder)
