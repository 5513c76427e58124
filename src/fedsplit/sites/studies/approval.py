"""Whether a client takes part in a study: what must hold, and what its owner decides."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial

from fedsplit.channels.channel import Request
from fedsplit.errors import InputError, RequestError, StateError
from fedsplit.regression.client.guards.rules import Rules
from fedsplit.remote.messages import Signature
from fedsplit.sites.budget import today
from fedsplit.sites.refusals import REFUSED
from fedsplit.sites.studies.asked_questions import AskedQuestions
from fedsplit.sites.studies.credentials import Credentials
from fedsplit.sites.studies.describing import Describer
from fedsplit.sites.studies.hashes import read_whole_hash, short
from fedsplit.sites.studies.noise import overspent
from fedsplit.sites.studies.policy import objection
from fedsplit.sites.studies.proposal import Decision, Propose
from fedsplit.sites.studies.scope import check_question
from fedsplit.sites.studies.secure_gate import ALWAYS, SecureGate
from fedsplit.sites.studies.store import RULE, Decided, Studies
from fedsplit.sites.studies.study import Study, read_study

FINGERPRINT = re.compile("[0-9a-f]{64}")

ASK = "ask"


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
        A study and whether it is ``signed``, in words for the owner.
    rules : Rules
        Of the owner: a study that breaks one is declined.

    Attributes
    ----------
    studies : Studies
    secure : SecureGate
        For studies with secure sums.
    """

    def __init__(
        self,
        studies: Studies,
        name: str,
        mode: str,
        kinds: Mapping[str, object],
        credentials: Credentials | None,
        words: Callable[..., str],
        rules: Rules,
    ) -> None:
        self.studies = studies
        self._name = name
        self._mode = mode
        if mode not in (ASK, ALWAYS):
            self._mode = read_whole_hash(mode)
        self._kinds = kinds
        self._credentials = credentials
        self._rules = rules
        self.secure = SecureGate(studies, name, credentials, rules)
        self._describer = Describer(studies, partial(words, signed=credentials is not None))
        # The studies that were read, with what was asked of them, by hash.
        self._open: dict[str, tuple[Study, AskedQuestions]] = {}

    def propose(self, question: Propose, rows: int | None) -> Decision:
        """What the owner has decided about a study; raises InputError for one that is not valid.

        Parameters
        ----------
        question : Propose
        rows : int or None
            How many rows the client has, where a rule depends on that.
        """
        content = question.study.encode()
        try:
            study = read_study(content, self._kinds)
            self._verify(study, question.signature)
        except InputError as error:  # which has nothing to do with the data here
            raise RequestError(str(error)) from None
        name = study.hash
        self._check_day(name)
        if name not in self.studies.hashes():
            self.studies.keep(name, content, question.signature)
        decided = self.studies.decided(name)
        broken = self._broken(study, rows)
        if decided is not None and (decided.over or _differs(decided, broken)):
            self.studies.reopen(name)
            decided = None
        if decided is None:
            self._decide(study, broken)
            decided = self.studies.decided(name)
        state = self.studies.state(name)
        if decided is None or state == "pending":
            # Beside the answer: how long that takes would tell the size of the file.
            self._describer.add(study, self._exposed(study))
            return Decision(name, "pending")
        letter = None
        if study.secure and state == "approved":
            letter = self.secure.letter(study, decided)
        return Decision(name, state, decided.reason, letter=letter)

    def wait_for_words(self) -> None:
        """Wait until the studies that were proposed are put into words."""
        self._describer.wait()

    def _broken(self, study: Study, rows: int | None) -> tuple[str, str]:
        """Which rule a study breaks, for the server and for the owner alone; empty if none."""
        reason = self._objection(study)
        if not reason and rows is not None and rows < self._rules.rows:
            return REFUSED, f"least_rows: {rows:,} rows here, fewer than {self._rules.rows:,}"
        return reason, ""

    def _objection(self, study: Study) -> str:
        """The rule that a study breaks whatever the data are; an empty text if there is none."""
        reason = objection(self._rules, study) or self.secure.objection(study)
        return reason or overspent(self.studies, study, self._rules)

    def _decide(self, study: Study, broken: tuple[str, str]) -> None:
        """Decide as the rules and the mode say, or leave it to the owner."""
        name = study.hash
        if broken[0]:
            self.studies.decide(name, "declined", RULE, *broken)
        elif self._mode in (ALWAYS, name) and not self.secure.needs_owner(study, self._mode):
            self.studies.accept(name, [])
            self.studies.decide(name, "approved", f"--approve {self._mode}")

    def _exposed(self, study: Study) -> list[tuple[str, ...]]:
        """The clients that a study exposes together with others, each group in order."""
        return [each.clients for each in self.secure.exposed(study)]

    def _check_day(self, name: str) -> None:
        """Raise RequestError if as many other studies have begun today as the owner allows."""
        most = self._rules.studies
        if not self.studies.may_begin(name, today(), most):
            what = "1 study" if most == 1 else f"{most} studies"
            raise RequestError(f"its owner allows {what} a day (studies_per_day)")

    def _verify(self, study: Study, signature: Signature) -> None:
        if self._name not in study.members:
            raise RequestError("the study is not for this client: it is not among the members")
        from fedsplit.remote.keys import check_name  # needs cryptography

        for name in study.members:
            check_name(name)
        if study.secure:
            self.secure.check()
        if self._credentials is None:
            return
        from fedsplit.remote.signatures import check_signature

        known = self._credentials
        check_signature(study.canonical, signature, study.coordinator, known.ca)
        if known.fingerprint not in study.members[self._name].split():
            raise RequestError("the study has another key of this client than the one in use here")
        _check_keys(study)

    def admit(self, request: Request) -> Study:
        """The approved study that a request belongs to; raises RequestError if there is none."""
        try:
            study, _ = self._approved(request.study)
            self._check_unspent(study)
            for question in request.parts:
                check_question(study, question)
        except StateError:
            raise
        except InputError as error:
            raise RequestError(str(error)) from None
        return study

    def _check_unspent(self, study: Study) -> None:
        """Raise RequestError if others have spent the budget of noise since a study was opened."""
        if (self.studies.path(study.hash) / "begun").exists():
            return
        reason = overspent(self.studies, study, self._rules)
        if reason:
            raise RequestError(f"the study breaks a rule of its owner: {reason}")

    def count(self, request: Request, rows: str) -> None:
        """Count an admitted request about some version of the rows; RequestError for one too many.

        The same question about the same rows adds nothing, and does not count.
        """
        self._open[request.study][1].add(request, rows)

    def note_answer(self, name: str) -> None:
        """Note that a question of a study was answered, so that it has begun."""
        self.studies.begin(name, today())

    def end(self, name: str) -> None:
        """Answer nothing more of a study, which has its result."""
        self.studies.end(name)

    def details(self, name: str) -> str:
        """Why a study was declined, for the owner alone."""
        decided = self.studies.decided(name)
        if decided is None:
            return ""
        return decided.details

    def asked(self, name: str) -> tuple[int, int]:
        """How many different questions of a study were asked, and how many there may be."""
        study, asked = self._open[name]
        return len(asked), study.most

    def _approved(self, name: str) -> tuple[Study, AskedQuestions]:
        if not name:
            raise RequestError("the question belongs to no study: propose one first")
        if len(name) != 64 or name not in self.studies.hashes():
            raise RequestError(f"the study {short(name[:16])} was not proposed here")
        decided = self.studies.decided(name)
        if decided is not None and decided.over:
            raise RequestError(
                f"the approval of the study {short(name[:16])} has ended: propose the study again"
            )
        if decided is None or decided.verdict != "approved":
            what = "has not approved"
            if decided is not None and decided.verdict == "declined":
                what = "declined"
            raise RequestError(f"its owner {what} the study {short(name[:16])}")
        self._check_day(name)
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
        reason = self._objection(study)
        if reason:
            raise RequestError(f"the study breaks a rule of its owner: {reason}")
        return study, AskedQuestions(folder / "asked", study)


def _differs(decided: Decided, broken: tuple[str, str]) -> bool:
    """Whether the rules, or the rows, have changed since a rule declined a study."""
    return decided.by == RULE and (decided.reason, decided.details) != broken


def _check_keys(study: Study) -> None:
    """Raise RequestError unless every member has keys, and no key belongs to two."""
    keys = [key for text in study.members.values() for key in text.split()]
    if not all(study.members.values()) or not all(FINGERPRINT.fullmatch(key) for key in keys):
        raise RequestError("the study has a member without the fingerprint of a key")
    if len(set(keys)) < len(keys):
        raise RequestError("the study has the same key for two of its members")
