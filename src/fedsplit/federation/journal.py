"""The journal of the coordinator: every response as it was received, by study, exchange and site.

An analysis is a function of its answers, so that the journal is all of a run's state. To resume a
run, and to go on when more answers have come by files, is to run the analysis on what is recorded.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal, NamedTuple

from fedsplit.federation.database import Database
from fedsplit.federation.messages import LogHead
from fedsplit.federation.study import Study

SCHEMA = """
CREATE TABLE studies (hash BLOB PRIMARY KEY, content BLOB NOT NULL);
CREATE TABLE exchanges (
    study BLOB, number INTEGER, question BLOB NOT NULL, clock REAL, PRIMARY KEY (study, number));
CREATE TABLE responses (
    study BLOB, number INTEGER, site TEXT, outcome TEXT NOT NULL, data BLOB, trouble TEXT NOT NULL,
    seconds REAL NOT NULL, PRIMARY KEY (study, number, site));
CREATE TABLE heads (
    study BLOB, site TEXT, key TEXT, number INTEGER, hash BLOB NOT NULL,
    PRIMARY KEY (study, site, number));
"""


class Recorded(NamedTuple):
    """What came from one site in one exchange.

    Attributes
    ----------
    outcome : str
        As in ``Response``, or ``silent`` where nothing came.
    data : bytes or None
        The signed response with an answer; the bytes as they came, so that everybody who has the
        site's key can verify them. None without an answer.
    trouble : str
        Why there is none, in a line.
    seconds : float
        From the question to the response.
    """

    outcome: Literal["answer", "waiting", "refused", "failed", "silent"]
    data: bytes | None
    trouble: str
    seconds: float


class Journal(Database):
    """The journal of all studies of a coordinator."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, SCHEMA, 2)

    def begin(self, study: Study) -> None:
        """Note a study, unless it is noted."""
        with self.transaction():
            values = study.digest, study.content
            self.execute("INSERT OR IGNORE INTO studies VALUES (?, ?)", *values)

    def exchange(self, study: bytes, number: int) -> tuple[bytes | None, float | None]:
        """The digest of what was asked, and when it ended on the clock of the run."""
        statement = "SELECT question, clock FROM exchanges WHERE study = ? AND number = ?"
        return next(iter(self.execute(statement, study, number)), (None, None))

    def open(self, study: bytes, number: int, question: bytes) -> None:
        """Begin an exchange, unless it has begun."""
        values = study, number, question
        self.execute("INSERT OR IGNORE INTO exchanges VALUES (?, ?, ?, NULL)", *values)

    def close_exchange(self, study: bytes, number: int, clock: float) -> None:
        values = clock, study, number
        self.execute("UPDATE exchanges SET clock = ? WHERE study = ? AND number = ?", *values)

    def responses(self, study: bytes, number: int) -> dict[str, Recorded]:
        """What came in an exchange, by site."""
        wanted = "site, outcome, data, trouble, seconds"
        statement = f"SELECT {wanted} FROM responses WHERE study = ? AND number = ?"
        rows = self.execute(statement, study, number)
        return {site: Recorded(*row) for site, *row in rows}

    def add(self, study: bytes, number: int, site: str, recorded: Recorded) -> None:
        """Record what came from a site."""
        row = study, number, site, *recorded
        self.execute("INSERT OR REPLACE INTO responses VALUES (?, ?, ?, ?, ?, ?, ?)", *row)

    def forget(self, study: bytes, number: int, site: str) -> None:
        """Forget what came from a site."""
        where = "study = ? AND number = ? AND site = ?"
        self.execute(f"DELETE FROM responses WHERE {where}", study, number, site)

    def answered(self, study: bytes) -> int:
        """The number of questions that a site has answered."""
        statement = (
            "SELECT count(DISTINCT number) FROM responses WHERE study = ? AND number > 0 AND "
            "data IS NOT NULL"
        )
        return int(self.scalar(statement, study))

    def head(self, study: bytes, site: str) -> LogHead | None:
        """The last head of a site's log in a study."""
        return self._head("study = ? AND site = ?", study, site)

    def head_of(self, key: str) -> LogHead | None:
        """The last head, in all studies, of the log of the site with this key."""
        return self._head("key = ?", key)

    def _head(self, where: str, *values: object) -> LogHead | None:
        rows = self.execute(
            f"SELECT number, hash FROM heads WHERE {where} ORDER BY number DESC LIMIT 1", *values
        )
        return LogHead(*rows[0]) if rows else None

    def note_head(self, study: bytes, site: str, key: str, head: LogHead) -> bool:
        """Note a head of a site's log, and return whether it continues those that are noted.

        A log only grows, and an answer that is sent again has the head that it had.
        """
        before = "SELECT hash FROM heads WHERE study = ? AND site = ? AND number = ?"
        known = self.scalar(before, study, site, head.number)
        last = self.head(study, site)
        if known is None and (last is None or head.number > last.number):
            row = study, site, key, head.number, head.hash
            self.execute("INSERT INTO heads VALUES (?, ?, ?, ?, ?)", *row)
            return True
        return bool(known == head.hash)

    def forget_last(self, study: bytes) -> None:
        """Forget the last exchange if it has an answer that cannot be used: it is asked again."""
        with self.transaction():
            last = self.scalar("SELECT max(number) FROM exchanges WHERE study = ?", study)
            found = self.responses(study, last or 0)
            if last and any(each.data is None for each in found.values()):
                for table in ("responses", "exchanges"):
                    statement = f"DELETE FROM {table} WHERE study = ? AND number = ?"
                    self.execute(statement, study, last)
