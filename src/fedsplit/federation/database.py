"""One SQLite file, with transactions that reach the disk."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

from fedsplit.errors import StateError


class Database:
    """A file of tables that is changed in transactions: a kill leaves all of one or nothing.

    Parameters
    ----------
    path : Path
        Created if it does not exist, for its owner's eyes alone.
    schema : str
        The statements that create the tables of a new file.
    version : int
        Of the schema; a file of a later version is refused, untouched.
    durable : bool
        Whether a commit waits until the disk has it. Otherwise the last commits before a loss of
        power, though not before a kill, may be lost.
    upgrades : mapping of int to str
        By version, the statements that bring a file of it to the next one, in one transaction.

    Attributes
    ----------
    path : Path
    """

    def __init__(
        self,
        path: Path,
        schema: str,
        version: int,
        durable: bool = True,
        upgrades: Mapping[int, str] = MappingProxyType({}),
    ) -> None:
        self.path = path
        try:
            if not path.exists():
                path.touch(mode=0o600)
            # Statements pass one at a time, under the owner's lock; a site answers from a thread.
            self._connection = sqlite3.connect(
                path, isolation_level=None, check_same_thread=False, timeout=30.0
            )
            # With a write-ahead log a commit is one fsync; FULL is what makes it wait for it.
            [[mode]] = self.execute("PRAGMA journal_mode = WAL")
            self.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
            [[found]] = self.execute("PRAGMA user_version")
        except OSError as error:
            raise StateError(f"{path}: cannot be used ({error.strerror})") from None
        except sqlite3.Error as error:
            raise StateError(f"{path}: cannot be used ({error})") from None
        if mode != "wal":  # it needs memory that processes share
            raise StateError(f"{path}: is on a file system without shared memory: use a local disk")
        steps = {0: schema} if not found else {at: upgrades.get(at) for at in range(found, version)}
        if None not in steps.values() and found <= version:
            self._change(steps, version)
        else:
            self.close()
            raise StateError(
                f"{path}: has version {found}, this fedsplit reads version {version}: use the "
                "fedsplit that wrote it, or another folder"
            )

    def _change(self, steps: Mapping[int, str | None], version: int) -> None:
        """Bring a file to a version, unless it is there."""
        if not steps:
            return
        with self.transaction():
            # another process may have done it meanwhile
            [[found]] = self.execute("PRAGMA user_version")
            for at, statements in steps.items():
                if at >= found:
                    for statement in filter(str.strip, (statements or "").split(";")):
                        self.execute(statement)
            self.execute(f"PRAGMA user_version = {version}")
        # Without its write-ahead log a file is an old one then, and never a new one.
        self.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def execute(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """Run one statement, and return its rows."""
        try:
            return self._connection.execute(statement, values).fetchall()
        except sqlite3.Error as error:  # a full disk, a lock that is held, a damaged file
            raise StateError(f"{self.path}: cannot be used ({error})") from None

    def scalar(self, statement: str, *values: Any) -> Any:
        """Return the first value of the first row; None if there is no row."""
        rows = self.execute(statement, *values)
        return rows[0][0] if rows else None

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Make all changes within the block durable at its end, or none if it raises.

        The lock is taken at the beginning, so that two processes that serve one folder by mistake
        take turns instead of both reading the state before either changes it.
        """
        try:
            self.execute("BEGIN IMMEDIATE")
            yield
            self.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self._connection.rollback()
            raise

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        """Undo the changes within the block if it raises, and keep those of the transaction."""
        # A refusal is recorded in the same transaction in which its stages are undone.
        self.execute("SAVEPOINT stages")
        try:
            yield
        except BaseException:
            if self._connection.in_transaction:  # SQLite may have undone all of it
                self.execute("ROLLBACK TO stages")
                self.execute("RELEASE stages")
            raise
        self.execute("RELEASE stages")

    def close(self) -> None:
        self._connection.close()
