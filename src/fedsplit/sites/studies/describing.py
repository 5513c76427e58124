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
        # By hash, those that were put into words, or are about to be, with whom they expose.
        self._known: dict[str, list[tuple[str, ...]]] = {}
        self._lock = Lock()
        self._working = False
        self._thread = Thread(target=self._work, name="words", daemon=True)

    def add(self, study: Study, exposed: list[tuple[str, ...]]) -> None:
        """Put a study that exposes some clients into words, unless that was done."""
        with self._lock:
            if self._known.get(study.hash) == exposed:
                return
            self._known[study.hash] = exposed
            self._waiting.append(study)
            if not self._working:
                self._working = True
                self._thread = Thread(target=self._work, name="words", daemon=True)
                self._thread.start()

    def wait(self) -> None:
        """Wait until all of them are put into words."""
        if self._working:
            self._thread.join()

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._working = False
                    return
                study = self._waiting.pop(0)
            try:
                if self._studies.undecided(study.hash):
                    exposed = self._known[study.hash]
                    self._studies.describe(study.hash, self._words(study))
                    # last, so that nobody accepts what the words do not say
                    self._studies.accept(study.hash, exposed)
            except (OSError, InputError):  # a full disk, say: the next proposal tries again
                with self._lock:
                    self._known.pop(study.hash, None)
