"""Whether a client takes part in a study: what must hold, and what its owner decides."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from threading import Thread
from typing import NamedTuple

from fedsplit.errors import InputError, RequestError
from fedsplit.regression.client.guards.rules import Rules
from fedsplit.remote.channel import Request
from fedsplit.remote.messages import Signature
from fedsplit.sites.budget import today
from fedsplit.sites.studies.asked_questions import AskedQuestions
from fedsplit.sites.studies.hashes import read_whole_hash, short
from fedsplit.sites.studies.policy import objection
from fedsplit.sites.studies.proposal import Decision, Propose
from fedsplit.sites.studies.scope import check_question
from fedsplit.sites.studies.store import RULE, Decided, Studies
from fedsplit.sites.studies.study import Study, read_study

ASK = "ask"
ALWAYS = "always"


class Credentials(NamedTuple):
    """What a client knows about itself and the federation.

    Attributes
    ----------
    fingerprint : str
        Of its own key.
    ca : bytes
        The certificate (PEM) of the federation's authority.
    """

    fingerprint: str
    ca: bytes


class Approval:
    """The gate of a client: a study is verified, then approved by its owner, then asked about.

    Parameters
    ----------
    studies : Studies
        Where they are kept.
    name : str
        Of the client.
    mode : str
        ``"ask"``: every study waits for its owner. ``"always"``: each is approved. A hash: that
        study is approved, others wait.
    kinds : mapping of str
        The questions that the client answers, by name.
    credentials : Credentials or None
        None where there are no keys, and so nothing to verify.
    words : callable
        A study and whether it is signed, in words for the owner.
    rules : Rules
        Of the owner: a study that breaks one is declined.
    """

    def __init__(
        self,
        studies: Studies,
        name: str,
        mode: str,
        kinds: Mapping[str, object],
        credentials: Credentials | None,
        words: Callable[[Study, bool], str],
        rules: Rules,
    ) -> None:
        self.studies = studies
        self._name = name
        self._mode = mode
        if mode not in (ASK, ALWAYS):
            self._mode = read_whole_hash(mode)
        self._kinds = kinds
        self._credentials = credentials
        self._words = words
        self._rules = rules
        # The hashes of those that were put into words.
        self._described: set[str] = set()
        # The studies that were read, with what was asked of them, by hash.
        self._open: dict[str, tuple[Study, AskedQuestions]] = {}

    def propose(self, question: Propose) -> Decision:
        """What the owner has decided about a study; raises InputError for one that is not valid."""
        content = question.study.encode()
        try:
            study = read_study(content, self._kinds)
            self._verify(study, question.signature)
        except InputError as error:  # which has nothing to do with the data here
            raise RequestError(str(error)) from None
        name = study.hash
        if name not in self.studies.hashes():
            self.studies.keep(name, content, question.signature)
        if name not in self._described:
            self._described.add(name)
            # Beside the answer: how long that takes would tell the size of the file.
            Thread(target=self._describe, args=(study,), name="words", daemon=True).start()
        decided = self._decided(name)
        if decided is None:
            self._decide(study)
            decided = self._decided(name)
        if decided is None:
            return Decision(name, "pending")
        return Decision(name, decided.verdict, decided.reason)

    def _describe(self, study: Study) -> None:
        """Write down what a study means here, for its owner."""
        try:
            self.studies.describe(study.hash, self._words(study, self._credentials is not None))
        except (OSError, InputError):  # a full disk, say: the next proposal tries again
            self._described.discard(study.hash)

    def _decided(self, name: str) -> Decided | None:
        try:
            return self.studies.decided(name)
        except InputError:  # it names a file, which is for the owner
            raise RequestError("the record of the owner's decision cannot be read") from None

    def _decide(self, study: Study) -> None:
        """Decide as the rules and the mode say, or leave it to the owner."""
        name = study.hash
        reason = objection(self._rules, study)
        if reason:
            self.studies.decide(name, "declined", RULE, reason)
        elif self._mode in (ALWAYS, name):
            self.studies.decide(name, "approved", f"--approve {self._mode}")

    def _verify(self, study: Study, signature: Signature) -> None:
        if self._name not in study.members:
            raise RequestError("the study is not for this client: it is not among the members")
        if self._credentials is None:
            return
        from fedsplit.remote.signatures import check_signature  # needs cryptography

        known = self._credentials
        check_signature(study.canonical, signature, study.coordinator, known.ca)
        if known.fingerprint not in study.members[self._name].split():
            raise RequestError("the study has another key of this client than the one in use here")

    def admit(self, request: Request) -> Study:
        """The approved study that a request belongs to, which is counted.

        Raises
        ------
        InputError
            If it belongs to none, is not part of it, or is one question too many.
        """
        try:
            study, asked = self._approved(request.study)
            for question in request.parts:
                check_question(study, question)
            asked.add(request)
        except InputError as error:
            raise RequestError(str(error)) from None
        return study

    def asked(self, name: str) -> tuple[int, int]:
        """How many different questions of a study were asked, and how many there may be."""
        study, asked = self._open[name]
        return len(asked), study.most

    def _approved(self, name: str) -> tuple[Study, AskedQuestions]:
        if not name:
            raise RequestError("the question belongs to no study: propose one first")
        if len(name) != 64 or name not in self.studies.hashes():
            raise RequestError(f"the study {short(name[:16])} was not proposed here")
        decided = self._decided(name)
        if decided is None or decided.verdict != "approved":
            what = "has not approved" if decided is None else "declined"
            raise RequestError(f"its owner {what} the study {short(name[:16])}")
        if name not in self._open:
            self._open[name] = self._opened(name)
        return self._open[name]

    def _opened(self, name: str) -> tuple[Study, AskedQuestions]:
        """An approved study, which must still suit the rules, and what was asked of it."""
        folder = self.studies.path(name)
        study = read_study((folder / "study.json").read_bytes(), self._kinds)
        if study.hash != name:
            raise RequestError(f"the study {short(name[:16])} was changed in its folder")
        # It may have been approved while there were no keys.
        self._verify(study, self.studies.signature(name))
        reason = objection(self._rules, study)
        if reason:
            raise RequestError(f"the study breaks a rule of its owner: {reason}")
        most = self._rules.studies
        if not self.studies.begin(name, today(), most):
            raise RequestError(f"its owner allows {most} studies a day (studies_per_day)")
        return study, AskedQuestions(folder / "asked", study)
