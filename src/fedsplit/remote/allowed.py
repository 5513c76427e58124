"""The keys of the clients that may join, read again whenever their files change."""

from __future__ import annotations

from pathlib import Path

from fedsplit.errors import InputError
from fedsplit.files import Stamp
from fedsplit.remote.key_folder import check_client, clients_folder, known_clients
from fedsplit.remote.keys import fingerprint, read_public_keys


class AllowedKeys:
    """Who may join: by the fingerprint of a key, the name of its client.

    Deleting a file revokes its client at once. So does a file that cannot be read, which affects
    no other client.

    Parameters
    ----------
    folder : Path
        One that ``make_keys`` wrote to, or one with NAME.pub files.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = clients_folder(folder)
        self._names: dict[str, str] = {}  # by fingerprint
        self._stamps: dict[str, Stamp] = {}  # by name
        self.check()

    def check(self) -> None:
        """Read all keys; ``InputError`` unless every file is right and no key is there twice."""
        if not known_clients(self._folder):
            raise InputError(
                f"{self._folder}: has no public keys (NAME.pub); make keys with fedsplit keys"
            )
        owners: dict[str, str] = {}
        for name in known_clients(self._folder):
            check_client(name)
            for key in read_public_keys(self._path(name)):
                twin = owners.setdefault(fingerprint(key), name)
                if twin != name:
                    raise InputError(
                        f"{self._folder}: clients {twin}, {name} have the same key, each needs "
                        "its own"
                    )
        self._read()

    @property
    def names(self) -> list[str]:
        """The clients that may join."""
        return known_clients(self._folder)

    def name(self, key: str) -> str | None:
        """The client with the key of this fingerprint, as its file is now; None if there is none.

        Only that file is looked at, unless it has changed: this is called for every request.
        """
        name = self._names.get(key)
        if name is None or self._stamp(name) != self._stamps.get(name):
            self._read()
            name = self._names.get(key)
        return name

    def _read(self) -> None:
        names: dict[str, str] = {}
        stamps: dict[str, Stamp] = {}
        for name in known_clients(self._folder):
            stamp = self._stamp(name)
            try:
                check_client(name)
                found = {fingerprint(key): name for key in read_public_keys(self._path(name))}
            except (InputError, OSError):
                continue
            if stamp is not None:
                stamps[name] = stamp
                names = found | names
        self._names = names
        self._stamps = stamps

    def _stamp(self, name: str) -> Stamp | None:
        try:
            return Stamp.of(self._path(name))
        except OSError:
            return None

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}.pub"
