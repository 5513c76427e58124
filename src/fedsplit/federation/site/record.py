"""The record of a site, ``site.db``: its studies, and everything that it sent, refused or decided.

The log is a hash chain, hash_k = SHA-256(hash_{k-1}, entry_k), and every answer carries its head.
Whoever has an answer (the coordinator, and in a secure study every other member) can therefore
verify that a log which is shown later was not changed or cut short.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

from fedsplit.channels import codec
from fedsplit.federation.database import Database
from fedsplit.federation.keys import digest
from fedsplit.federation.messages import LogHead
from fedsplit.federation.study import Analysis, Study, read_study

SCHEMA = """
CREATE TABLE studies (
    hash BLOB PRIMARY KEY, content BLOB NOT NULL, decision TEXT NOT NULL, since INTEGER NOT NULL,
    copy TEXT NOT NULL, secret BLOB NOT NULL);
CREATE TABLE transcript (
    study BLOB, number INTEGER, hash BLOB NOT NULL, total BLOB NOT NULL,
    PRIMARY KEY (study, number));
CREATE TABLE partners (study BLOB, name TEXT, key BLOB NOT NULL, PRIMARY KEY (study, name));
CREATE TABLE sent (
    study BLOB, number INTEGER, digest BLOB NOT NULL, question BLOB NOT NULL, value BLOB NOT NULL,
    transcript BLOB NOT NULL, head INTEGER NOT NULL, PRIMARY KEY (study, number));
CREATE TABLE preparations (study BLOB, key TEXT, request BLOB NOT NULL, PRIMARY KEY (study, key));
CREATE TABLE memory (study BLOB PRIMARY KEY, content BLOB NOT NULL);
CREATE TABLE log (
    number INTEGER PRIMARY KEY, time REAL NOT NULL, study BLOB NOT NULL, exchange INTEGER NOT NULL,
    event TEXT NOT NULL, detail TEXT NOT NULL, content BLOB NOT NULL, hash BLOB NOT NULL);
CREATE INDEX events ON log (event, time)
"""

LOG_SHORT = (
    "its database is older than what it has sent: it was restored from a backup, and would forget "
    "what it disclosed: its owner has to continue from the newest site.db, or begin with a new key"
)

Event: TypeAlias = Literal[
    "proposed", "approved", "declined", "answer", "refused", "ended", "reviewed"
]
"""What an entry of the log is about."""

Decision: TypeAlias = Literal["undecided", "approved", "declined", "ended"]


class LogEntry(NamedTuple):
    """One entry of the log.

    Attributes
    ----------
    number : int
        From 1.
    time : float
        Seconds since 1970.
    study : bytes
        Its hash.
    exchange : int
        Its number; 0 for what is about the study as a whole.
    event : Event
    detail : str
        For the owner: who was to be protected from what. It never leaves the site.
    content : bytes
        The digest of what was asked and of what was sent; random of a refusal.
    """

    number: int
    time: float
    study: bytes
    exchange: int
    event: str
    detail: str
    content: bytes


class StudyState(NamedTuple):
    """A study at this site.

    Attributes
    ----------
    study : Study
    decision : Decision
    since : int
        The entry of the log with the decision: refusals count from there on.
    copy : str
        The name of the copy of the rows that answers; empty before it is approved.
    secret : bytes
        The X25519 key for the masks; empty before it is approved.
    """

    study: Study
    decision: Decision
    since: int
    copy: str
    secret: bytes


class Sent(NamedTuple):
    """What was sent in an exchange.

    Attributes
    ----------
    digest, question : bytes
        What was asked.
    value, transcript : bytes
        As in ``Response``.
    head : LogHead
        The entry of the log that records it.
    """

    digest: bytes
    question: bytes
    value: bytes
    transcript: bytes
    head: LogHead


class Record(Database):
    """The database of a site.

    Parameters
    ----------
    path : Path
    known : mapping of str to type
        The analyses that can be run here.
    clock : callable
        Seconds since 1970.
    """

    def __init__(
        self, path: Path, known: Mapping[str, type[Analysis]], clock: Callable[[], float]
    ) -> None:
        super().__init__(path, SCHEMA, 2)
        self._known = known
        self._clock = clock
        self._read: dict[bytes, Study] = {}  # by content: to check one takes longer than an answer

    # ------------------------------------------------------------------ studies

    def study(self, digest: bytes) -> StudyState | None:
        """A study that was proposed here."""
        rows = self.execute(
            "SELECT content, decision, since, copy, secret FROM studies WHERE hash = ?", digest
        )
        for content, *state in rows:
            if content not in self._read:
                self._read[content] = read_study(content, self._known)
            return StudyState(self._read[content], *state)
        return None

    def add_study(self, study: Study) -> None:
        """Enter a study that is proposed."""
        self.append(study.digest, 0, "proposed", study.title)
        row = study.digest, study.content
        self.execute("INSERT INTO studies VALUES (?, ?, 'undecided', 0, '', x'')", *row)

    def decide(
        self, digest: bytes, event: Event, detail: str = "", copy: str = "", secret: bytes = b""
    ) -> None:
        """Record a decision. A study that is approved again keeps its copy and its key."""
        # Another copy would be other rows in one study; another key, masks that do not cancel.
        head = self.append(digest, 0, event, detail)
        self.execute(
            "UPDATE studies SET decision = ?, since = ?, copy = iif(copy = '', ?, copy), "
            "secret = iif(secret = x'', ?, secret) WHERE hash = ?",
            *(event, head.number, copy, secret, digest),
        )

    def studies(self) -> list[StudyState]:
        """All studies that were proposed, in their order."""
        rows = self.execute("SELECT hash FROM studies ORDER BY rowid")
        found = (self.study(each) for (each,) in rows)
        return [each for each in found if each is not None]

    def reviewed(self, state: StudyState) -> int:
        """The entry of the log from which on refusals of a study count."""
        statement = "SELECT max(number) FROM log WHERE event = 'reviewed' AND study = ?"
        return max(state.since, self.scalar(statement, state.study.digest) or 0)

    def reason(self, state: StudyState) -> str:
        """What was noted with the decision on a study."""
        return str(self.scalar("SELECT detail FROM log WHERE number = ?", state.since) or "")

    def copies(self) -> list[str]:
        """The copies of rows that have answered, the latest last."""
        rows = self.execute(
            "SELECT copy FROM studies WHERE copy != '' GROUP BY copy ORDER BY max(since)"
        )
        return [copy for (copy,) in rows]

    # ------------------------------------------------------------------ the log

    def append(
        self, study: bytes, exchange: int, event: Event, detail: str = "", content: bytes = b""
    ) -> LogHead:
        """Append an entry to the log, and return the new head."""
        # In the transaction of what it records: the head that is sent is the one that is stored.
        last = self.head()
        entry = LogEntry(last.number + 1, self.now(), study, exchange, event, detail, content)
        chained = digest(last.hash, codec.encode(entry))
        row = *entry, chained
        self.execute("INSERT INTO log VALUES (?, ?, ?, ?, ?, ?, ?, ?)", *row)
        return LogHead(entry.number, chained)

    def now(self) -> float:
        """Seconds since 1970, and never less than the log has.

        A clock that is set back would make approvals, and the budgets of a day, last longer.
        """
        return max(self._clock(), self.scalar("SELECT max(time) FROM log") or 0.0)

    def head(self) -> LogHead:
        """The head of the log; number 0 and no hash before the first entry."""
        rows = self.execute("SELECT number, hash FROM log ORDER BY number DESC LIMIT 1")
        return LogHead(*rows[0]) if rows else LogHead(0, b"")

    def contains(self, head: LogHead) -> bool:
        """Whether the log has this entry."""
        found = self.scalar("SELECT hash FROM log WHERE number = ?", head.number)
        return found == head.hash or head == LogHead(0, b"")

    def log(self) -> list[LogEntry]:
        """All entries."""
        return [entry for entry, _ in self.chained()]

    def chained(self) -> list[tuple[LogEntry, bytes]]:
        """All entries, each with the hash of the chain up to it."""
        rows = self.execute("SELECT * FROM log ORDER BY number")
        return [(LogEntry(*entry), chained) for *entry, chained in rows]

    def first_wrong_entry(self) -> int:
        """The number of the first entry that does not continue the chain; 0 if all of them do."""
        chain = b""
        for number, (entry, stored) in enumerate(self.chained(), start=1):
            chain = digest(chain, codec.encode(entry))
            if chain != stored or entry.number != number:
                return number
        return 0

    def count(
        self, event: Event, study: bytes | None = None, since: float = 0, after: int = 0
    ) -> int:
        """The number of entries about questions of one study, or of all."""
        # The log itself is counted. There is no counter that could be reset, or disagree with it.
        statement = (
            "SELECT count(*) FROM log WHERE event = ? AND time >= ? AND number > ? AND exchange > 0"
        )
        values: list[object] = [event, since, after]
        if study is not None:
            statement += " AND study = ?"
            values.append(study)
        return int(self.scalar(statement, *values))

    def last_answer(self) -> int:
        """The entry of the log with the last answer to a question; 0 if there is none."""
        statement = "SELECT max(number) FROM log WHERE event = 'answer' AND exchange > 0"
        return int(self.scalar(statement) or 0)

    def proposed(self, since: float) -> int:
        """The number of studies that were proposed since then."""
        statement = "SELECT count(*) FROM log WHERE event = 'proposed' AND time >= ?"
        return int(self.scalar(statement, since))

    def studies_begun(self, since: float) -> set[bytes]:
        """The studies of which questions were answered since then."""
        statement = (
            "SELECT DISTINCT study FROM log WHERE event = 'answer' AND exchange > 0 AND time >= ?"
        )
        return {study for (study,) in self.execute(statement, since)}

    # ------------------------------------------------------------------ answers

    def sent(self, study: bytes, number: int) -> Sent | None:
        """What was sent in an exchange."""
        return self._sent("number = ?", study, number)

    def sent_to(self, study: bytes, digest: bytes) -> Sent | None:
        """What was sent in answer to a question of this digest."""
        return self._sent("digest = ? AND sent.number > 0", study, digest)

    def questions(self, study: bytes) -> list[bytes]:
        """The questions of a study that were answered, in their order."""
        statement = "SELECT question FROM sent WHERE study = ? AND number > 0 ORDER BY number"
        return [question for (question,) in self.execute(statement, study)]

    def _sent(self, where: str, *values: object) -> Sent | None:
        rows = self.execute(
            "SELECT digest, question, value, transcript, log.number, log.hash FROM sent JOIN log "
            f"ON log.number = sent.head WHERE sent.study = ? AND sent.{where} LIMIT 1",
            *values,
        )
        for asked, question, value, transcript, *head in rows:
            return Sent(asked, question, value, transcript, LogHead(*head))
        return None

    def keep(self, study: bytes, number: int, sent: Sent) -> None:
        """Keep what is sent in an exchange."""
        # The primary key forbids a second answer in one exchange.
        *content, head = sent
        row = study, number, *content, head.number
        self.execute("INSERT INTO sent VALUES (?, ?, ?, ?, ?, ?, ?)", *row)

    def partners(self, study: bytes) -> dict[str, bytes]:
        """The X25519 keys of all members of a secure study."""
        return dict(self.execute("SELECT name, key FROM partners WHERE study = ?", study))

    def keep_partners(self, study: bytes, keys: Mapping[str, bytes]) -> None:
        for name, key in keys.items():
            self.execute("INSERT INTO partners VALUES (?, ?, ?)", study, name, key)

    def transcript(self, study: bytes) -> list[tuple[bytes, bytes]]:
        """The hash after each complete exchange of a secure study, and the sum that it came to."""
        statement = "SELECT hash, total FROM transcript WHERE study = ? ORDER BY number"
        return [(chained, total) for chained, total in self.execute(statement, study)]

    def extend_transcript(self, study: bytes, number: int, chained: bytes, total: bytes) -> None:
        self.execute("INSERT INTO transcript VALUES (?, ?, ?, ?)", study, number, chained, total)

    def preparation(self, study: bytes, key: str) -> bytes | None:
        """The request that brought what a key names."""
        found: bytes | None = self.scalar(
            "SELECT request FROM preparations WHERE study = ? AND key = ?", study, key
        )
        return found

    def keep_preparation(self, study: bytes, key: str, request: bytes) -> None:
        self.execute("INSERT OR IGNORE INTO preparations VALUES (?, ?, ?)", study, key, request)

    def memory(self, study: bytes) -> bytes | None:
        """What the next answer of a secure study depends on beside the rows."""
        found: bytes | None = self.scalar("SELECT content FROM memory WHERE study = ?", study)
        return found

    def keep_memory(self, study: bytes, content: bytes) -> None:
        self.execute("INSERT OR REPLACE INTO memory VALUES (?, ?)", study, content)
