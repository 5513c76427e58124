"""Studies are put into words for their owner one after the other, beside the answers."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock, Thread

from fedsplit.errors import InputError
from fedsplit.sites.studies.store import Studies
from fedsplit.sites.studies.study import Study


class Describer:
    """Writes what pending studies mean here, in one thread however many are proposed.

    Parameters
    ----------
    studies : Studies
        Where the words are kept.
    words : callable
        A study in words; it may read the client's file.
    """

    def __init__(self, studies: Studies, words: Callable[[Study], str]) -> None:
        self._studies = studies
        self._words = words
        self._waiting: list[Study] = []
        # The hashes of those that were put into words, or are about to be.
        self._known: set[str] = set()
        self._lock = Lock()
        self._working = False

    def add(self, study: Study) -> None:
        """Put a study into words, unless that was done."""
        with self._lock:
            if study.hash in self._known:
                return
            self._known.add(study.hash)
            self._waiting.append(study)
            if not self._working:
                self._working = True
                Thread(target=self._work, name="words", daemon=True).start()

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._working = False
                    return
                study = self._waiting.pop(0)
            try:
                if self._studies.undecided(study.hash):
                    self._studies.describe(study.hash, self._words(study))
            except (OSError, InputError):  # a full disk, say: the next proposal tries again
                with self._lock:
                    self._known.discard(study.hash)
