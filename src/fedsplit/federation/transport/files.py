"""Messages as files in a folder per site, which people carry: by a shared folder, or on a stick.

A question is ``FOLDER/SITE/DIGEST.question``, sealed for the site, and its answer lies
beside it as ``.answer``, sealed for the coordinator. Names by digest let the same file arrive
twice, and late, without harm.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from fedsplit import files
from fedsplit.errors import InputError
from fedsplit.federation import authority
from fedsplit.federation.keys import SigningKey, digest
from fedsplit.federation.messages import read_response
from fedsplit.federation.sealing import seal, unseal
from fedsplit.federation.site.readable import readable
from fedsplit.federation.transport import Arrivals
from fedsplit.texts import printable

if TYPE_CHECKING:
    from fedsplit.federation.site.site import Site


class FileTransport:
    """Writes questions into a folder, and reads the answers that are there.

    Parameters
    ----------
    folder : Path
    key : Ed25519 private key
        The coordinator's.
    members : mapping of str to str
        The public keys of the sites, in hexadecimal digits.

    Attributes
    ----------
    written : list of Path
        The questions that were written, to be carried to their sites.
    """

    waits = False

    @classmethod
    def open(cls, folder: Path, coordinator: Path) -> FileTransport:
        """The transport of the federation whose keys are in the coordinator's folder."""
        return cls(folder, *authority.coordinator(coordinator))

    def __init__(self, folder: Path, key: SigningKey, members: Mapping[str, str]) -> None:
        self.written: list[Path] = []
        self._folder = folder
        self._key = key
        self._members = members

    def exchange(self, messages: Mapping[str, bytes], seconds: float, largest: int) -> Arrivals:
        for site, message in messages.items():
            path = self._folder / site / f"{digest(message).hex()[:32]}.question"
            # A run that goes on asks again; whoever has the file already need not carry it twice.
            if not path.exists():
                path.parent.mkdir(parents=True, exist_ok=True)
                files.write_durably(path, seal(bytes.fromhex(self._members[site]), message))
                self.written.append(path)
            answer = path.with_suffix(".answer")
            if not answer.exists():
                continue
            # sealing adds fewer bytes than this
            if answer.stat().st_size > largest + 256:
                raise InputError(f"{answer}: is larger than any answer to this question")
            try:
                data = unseal(self._key, answer.read_bytes())
            except InputError as error:
                raise InputError(f"{answer}: {error}") from None
            with suppress(InputError):  # of what is no response the coordinator says so
                response = read_response(bytes.fromhex(self._members[site]), data)
                if response.outcome != "answer":
                    answer.unlink()  # its owner may change that, and answer the question again
            yield site, data


def answer_files(site: Site, key: SigningKey, folder: Path) -> list[Path]:
    """Answer the questions in a folder that have no answer yet.

    A readable copy of each is in the site's own folder: before it is masked, it is for the owner.

    Returns
    -------
    list of Path
        The answers. A study that waits for its owner has none yet.

    Raises
    ------
    InputError
        If a question could not be answered, as it is damaged or the disk is full; the others are.
    """
    coordinator = bytes.fromhex(site.policy.coordinator)
    written = []
    failed = ""
    for path in sorted(folder.glob("*.question")):
        answer = path.with_suffix(".answer")
        if answer.exists():
            continue
        try:
            # sealing adds fewer bytes than this
            if path.stat().st_size > site.policy.message + 256:
                raise InputError("is larger than any question (message in site.toml)")
            response = site.response(unseal(key, path.read_bytes()))
        except InputError as error:
            failed = failed or f"{path}: {error}"
            continue
        if response.outcome == "failed":  # what is mended here is answered the next time
            failed = failed or f"{path}: {response.reason}"
        if response.outcome in ("waiting", "failed"):
            continue
        copies = site.folder / "answers"
        copies.mkdir(mode=0o700, exist_ok=True)
        files.write_private(copies / f"{path.stem}.txt", printable(readable(site, response)))
        files.write_durably(answer, seal(coordinator, site.signed(response)))
        written.append(answer)
    if failed:
        raise InputError(failed)
    return written
