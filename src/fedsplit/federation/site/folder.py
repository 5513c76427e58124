"""The folder of a site: its key, its certificate, and ``site.toml``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec

from fedsplit import files
from fedsplit.errors import InputError, StateError
from fedsplit.federation import authority
from fedsplit.federation.keys import SigningKey
from fedsplit.federation.site.copies import source_of
from fedsplit.federation.site.policy import Policy, policy_of, read_policy
from fedsplit.federation.tables import given_value, in_toml


def check_format(folder: Path) -> None:
    """Raise InputError for the folder of an earlier fedsplit, which holds what it disclosed."""
    # what clients of earlier versions had in their folders
    found = [
        name
        for name in ("questions.jsonl", "settings", "studies", "letters")
        if (folder / name).exists()
    ]
    if found:
        raise InputError(
            f"{folder}: belongs to an earlier fedsplit ({found[0]}), whose record of what was "
            "disclosed cannot be read: keep it, and make another folder with fedsplit keys request"
        )


def check_complete(folder: Path) -> None:
    """Raise StateError for a folder with rows that answered, and without the record of it."""
    record = folder / "site.db"
    if (not record.exists() or not record.stat().st_size) and any((folder / "copies").glob("*.*")):
        raise StateError(
            f"{record}: is missing, and with it what was disclosed of the rows in copies: restore "
            "the newest one, or begin with another folder and a new key"
        )


def create(
    folder: Path,
    certificate: Path,
    data: str | None = None,
    server: str = "",
    settings: Mapping[str, str] | None = None,
) -> Policy:
    """Accept a certificate, and write ``site.toml`` unless it is there.

    Parameters
    ----------
    folder : Path
        With the key that was made there.
    certificate : Path
        What the coordinator sent (PEM), new or renewed.
    data : str, optional
        What the site answers from; needed unless ``site.toml`` is there.
    server : str
        Where the coordinator listens.
    settings : mapping of str to str, optional
        Other keys of ``site.toml``, each with its value in TOML; a text needs no quotes.
    """
    _check_folder(folder)
    path = folder / "site.toml"
    given = {key: given_value(text) for key, text in (settings or {}).items()}
    elsewhere = {
        "data": "by --data",
        "server": "by --url",
        "name": "by the certificate",
        "coordinator": "by the certificate",
    }
    for key in given.keys() & elsewhere.keys():
        raise InputError(f"--set {key}: it is given {elsewhere[key]}")
    if server:
        # who answers by files needs no aiohttp
        from fedsplit.federation.transport.https.site import address_of

        address_of(server)
        given["server"] = server
    if data is not None:
        given["data"] = str(Path(data).absolute())
    if path.exists() and given:
        raise InputError(f"{path}: is there already: change {', '.join(given)} in it")
    if not path.exists():
        if data is None:
            raise InputError(f"{path}: is not there yet: say which rows it is about (data)")
        # Whatever is wrong is said before anything is written.
        own = policy_of({"name": "site", "coordinator": "0" * 64, **given}, "site.toml")
        source_of(own.data, own.reading).names()
    try:
        authority.accept(folder, certificate.read_bytes())
    except OSError as error:
        raise InputError(f"{certificate}: cannot be read ({error.strerror})") from None
    except InputError as error:
        where = "" if str(error).startswith(str(folder)) else f"{certificate}: "
        raise InputError(f"{where}{error}") from None
    if not path.exists():
        given |= {
            "name": authority.read_certificate(folder / "site.crt").name,
            "coordinator": authority.read_certificate(folder / "coordinator.crt").key.hex(),
        }
        files.write_private(path, _policy_text(given))
    return opened(folder)[1]


def opened(folder: Path) -> tuple[SigningKey, Policy]:
    """The key and the policy in a folder; the data of a relative path lie beside it."""
    _check_folder(folder)
    path = folder / "site.toml"
    if not path.exists():
        raise InputError(
            f"{path}: is not there yet: fedsplit site init writes it, with the certificate that "
            "the coordinator sends"
        )
    policy = read_policy(path)
    accepted = folder / "coordinator.crt"
    if accepted.exists() and authority.read_certificate(accepted).key.hex() != policy.coordinator:
        raise InputError(f"{path}: coordinator: is another key than that of coordinator.crt")
    key = authority.read_key(folder / "site.key")
    return key, msgspec.structs.replace(policy, data=str(folder / policy.data))


def _check_folder(folder: Path) -> None:
    check_format(folder)
    if not (folder / "site.key").exists():
        raise InputError(
            f"{folder}: is not the folder of a site, it has no site.key: fedsplit keys request "
            f"{folder} makes one"
        )


def _policy_text(given: Mapping[str, Any]) -> str:
    """``site.toml`` with these keys, and every other one as a comment."""
    template = resources.files(__package__).joinpath("site.toml").read_text(encoding="utf-8")

    def line(match: re.Match[str]) -> str:
        key = match[1]
        return f"{key} = {in_toml(given[key])}" if key in given else match[0]

    return re.sub(r"^(?:# )?(\w+) = .*", line, template, flags=re.MULTILINE)
