"""A site's part in studies with secure sums: keys, letters, and masked answers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from fedsplit import fixed_point
from fedsplit.channels.summed import FEWEST
from fedsplit.errors import RequestError, listed
from fedsplit.fixed_point import Limbs
from fedsplit.remote.keys import PrivateKey
from fedsplit.sites.secure.ledger import LOST, Fresh, Ledger, Record
from fedsplit.sites.secure.letters import check_letters, write_letter
from fedsplit.sites.secure.masks import Exchange, mask, own_stream
from fedsplit.sites.secure.protocol import KeyLetter, Standing
from fedsplit.sites.secure.study_keys import StudyKeys, read_keys


class SecureStudy:
    """One study with secure sums at one site.

    Parameters
    ----------
    folder : Path
        Of the study; its file ``keys`` has the keys, and ``ledger`` what was sent.
    study : str
        Its hash.
    members : mapping of str to str
        Its sites, with the fingerprints of their long-term keys.
    name : str
        Of this site.
    least : int
        The fewest sites whose answers are added.
    """

    def __init__(
        self,
        folder: Path,
        study: str,
        members: Mapping[str, str],
        name: str,
        least: int = FEWEST,
    ) -> None:
        self._keys = folder / "keys"
        self._ledger = Ledger(folder / "ledger")
        self._study = study
        self._all = members
        self._name = name
        self._least = max(least, FEWEST)

    def letter(self, signer: PrivateKey, removal: bool) -> KeyLetter:
        """This site's key for the study, signed; a new one unless there is one.

        Parameters
        ----------
        signer : PrivateKey
            The site's long-term key.
        removal : bool
            Whether its owner allows that the study goes on without it.
        """
        if not self._keys.exists():
            # A ledger without an answer is one of a site that was stopped before it had its keys.
            if self._ledger.begun and self._ledger.read().number:
                raise RequestError(LOST)
            own = X25519PrivateKey.generate()
            letter = write_letter(self._study, self._name, own, removal, signer)
            # in this order: keys without a ledger are a ledger that was lost
            self._ledger.keep(Record())
            StudyKeys(own.private_bytes_raw().hex(), letter).keep(self._keys)
        return read_keys(self._keys).letter

    def meet(self, letters: Sequence[KeyLetter]) -> Standing:
        """Take the keys of all sites; from then on no others.

        Raises
        ------
        RequestError
            If they are not those of the study's members, or others than before.
        """
        keys = read_keys(self._keys)
        record = self._ledger.read()
        named = {letter.name: letter for letter in letters}
        if len(named) < len(letters):
            raise RequestError("two keys of the same client came")
        check_letters(self._study, self._all, named)
        if named[self._name] != keys.letter:
            raise RequestError("the study has another key of this client than the one made here")
        ordered = tuple(named[name] for name in sorted(named))
        if not keys.letters:
            keys._replace(letters=ordered).keep(self._keys)
        elif keys.letters != ordered:
            raise RequestError("the keys of the study are others than those that came first")
        return Standing(record.number, record.members or tuple(sorted(self._all)))

    @property
    def sets(self) -> tuple[tuple[str, ...], ...]:
        """The sites whose answers were added up so far."""
        return self._ledger.read().sets

    @property
    def willing(self) -> set[str]:
        """The sites whose owners allow that the study goes on without them."""
        return {letter.name for letter in self._shared_keys().letters if letter.removal}

    def answer(
        self,
        number: int,
        members: tuple[str, ...],
        question: str,
        compute: Callable[[Record], Fresh],
    ) -> Limbs:
        """The masked answer of this site in an exchange, (n, 4).

        Parameters
        ----------
        number : int
            Of the exchange.
        members : tuple of str
            The sites whose answers are added.
        question : str
            The SHA-256 of what was asked.
        compute : callable
            Gives the answer from what was told before; not called if it was sent already.
        """
        exchange = Exchange(self._study, number, question, members)

        def masked(record: Record) -> Fresh:
            keys = self._shared_keys()
            self._check_members(members, record, keys)
            plain = compute(record)
            cover = self._mask(exchange, keys, len(plain.numbers))
            return plain._replace(numbers=fixed_point.add(plain.numbers, cover))

        return self._ledger.answer(exchange, masked)

    def stream(self, question: str, numbers: Limbs) -> Callable[[int], bytes]:
        """Random bytes for the last digits of an answer, which only this site knows.

        Parameters
        ----------
        question : str
            The SHA-256 of what was asked.
        numbers : (n, 4) array
            The answer as it is.
        """
        return own_stream(read_keys(self._keys).secret, self._study, question, numbers)

    def unmasked(
        self, number: int, members: tuple[str, ...], question: str, masked: Limbs
    ) -> Limbs:
        """What this site has sent in an exchange, for its owner to check: (n, 4) -> (n, 4)."""
        exchange = Exchange(self._study, number, question, members)
        return fixed_point.subtract(masked, self._mask(exchange, self._shared_keys(), len(masked)))

    def _mask(self, exchange: Exchange, keys: StudyKeys, n: int) -> Limbs:
        partners = {letter.name: letter.key for letter in keys.letters}
        return mask(exchange, self._name, keys.secret, partners, n)

    def _shared_keys(self) -> StudyKeys:
        keys = read_keys(self._keys)
        if not keys.letters:
            raise RequestError("the keys of the other clients have not come yet")
        return keys

    def _check_members(self, members: tuple[str, ...], record: Record, keys: StudyKeys) -> None:
        """Raise RequestError unless these sites may be added without the others."""
        check_members(members, record.members or tuple(self._all), self._name, self._least)
        unwilling = [
            letter.name
            for letter in keys.letters
            if letter.name not in members and not letter.removal
        ]
        if unwilling:
            raise RequestError(
                f"the sum is to be without {listed(unwilling)}, whose owner has not allowed that: "
                "what it has sent could be told from the difference"
            )


def check_members(members: tuple[str, ...], before: Collection[str], name: str, least: int) -> None:
    """Raise RequestError unless a site may add its answer to those of ``members``.

    Parameters
    ----------
    members : tuple of str
        The sites whose answers are added.
    before : collection of str
        Those of the exchange before.
    name : str
        Of the site.
    least : int
        The fewest sites.
    """
    if list(members) != sorted(set(members)):
        raise RequestError("the sum names a client twice, or not in their order")
    if name not in members:
        raise RequestError("the sum is to be without this client")
    if not set(members) <= set(before):
        raise RequestError("the sum has clients that are not, or no longer, in the study")
    if len(members) < least:
        raise RequestError(f"the sum is of {len(members)} clients, fewer than {least}")
