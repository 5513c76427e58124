"""What a site has sent in a study with secure sums: on disk before it is sent.

A mask that is used for two different answers discloses their difference. So a site sends one answer
per exchange: asked again it sends the same bytes, whatever its rows are by then, and it answers
nothing else in the same exchange, nor in an earlier one.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedsplit import files
from fedsplit.channels import codec
from fedsplit.errors import InputError, RequestError
from fedsplit.fixed_point import Limbs
from fedsplit.regression.client.summing import Memory
from fedsplit.sites.secure.encoding import with_digest, without_digest
from fedsplit.sites.secure.masks import Exchange

LOST = (
    "the record of what it has sent in this study is lost, so that the study ends here: propose "
    "another one"
)


NOTHING = Memory()


class Record(NamedTuple):
    """What a site has sent last in a study.

    Attributes
    ----------
    sets : tuple of tuples of str
        The sites whose answers were added up, in one exchange after another; each is a part of the
        one before.
    number : int
        Of the last exchange that was answered; 0 before the first.
    digest : str
        Of that exchange: the question and the sites.
    reply : (n, 4) array of int64
        The bits of what was sent.
    memory : Memory
        What the next answer depends on beside the rows, before masks.
    """

    sets: tuple[tuple[str, ...], ...] = ()
    number: int = 0
    digest: str = ""
    reply: NDArray[np.int64] = np.zeros((0, 4), dtype=np.int64)
    memory: Memory = NOTHING

    @property
    def members(self) -> tuple[str, ...]:
        """The sites that still take part; empty before the first exchange."""
        return self.sets[-1] if self.sets else ()


class Fresh(NamedTuple):
    """A new answer.

    Attributes
    ----------
    numbers : (n, 4) array
        Before or after they are masked.
    memory : Memory
        As in ``Record``.
    """

    numbers: Limbs
    memory: Memory = NOTHING


class Ledger:
    """The record of one study, in a file that is replaced as a whole.

    Parameters
    ----------
    path : Path
        Of the file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def begun(self) -> bool:
        """Whether there is a record."""
        return self._path.exists()

    def read(self) -> Record:
        """The record; raises RequestError if it is lost, or cannot be read."""
        try:
            record: Record = codec.decode(Record, without_digest(self._path.read_bytes()))
        except (FileNotFoundError, InputError):
            raise RequestError(LOST) from None
        return record

    def keep(self, record: Record) -> None:
        """Replace the record; it is on disk when this returns."""
        files.write_private(self._path, with_digest(codec.encode(record)))

    def answer(self, exchange: Exchange, compute: Callable[[Record], Fresh]) -> Limbs:
        """What is sent in an exchange, (n, 4): what was sent before, or something new.

        Parameters
        ----------
        exchange : Exchange
        compute : callable
            Gives the masked answer; called only if nothing was sent in this exchange before.

        Raises
        ------
        RequestError
            For an exchange that is over, or another question in the last one.
        """
        record = self.read()
        if exchange.number == record.number and exchange.digest == record.digest:
            return record.reply.view(np.uint64)
        if exchange.number <= record.number:
            raise RequestError(
                f"exchange {exchange.number} of the study was answered before, and something else "
                f"was asked then: the last one was {record.number}"
            )
        masked = compute(record)
        sets = record.sets
        if exchange.members not in sets:
            sets = (*sets, exchange.members)
        self.keep(
            record._replace(
                sets=sets,
                number=exchange.number,
                digest=exchange.digest,
                reply=np.ascontiguousarray(masked.numbers).view(np.int64),
                memory=masked.memory,
            )
        )
        return masked.numbers
