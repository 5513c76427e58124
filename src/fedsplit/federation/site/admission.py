"""What a site answers at all: decisions, budgets and names, checked before any row is read."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from fedsplit.channels.channel import Request
from fedsplit.errors import RequestError, StateError
from fedsplit.federation.keys import digest
from fedsplit.federation.messages import Inquiry
from fedsplit.federation.site.disclosed import DisclosedRows, Known
from fedsplit.federation.site.policy import Policy
from fedsplit.federation.site.record import LOG_SHORT, Record, Sent, StudyState
from fedsplit.federation.study import Study

if TYPE_CHECKING:
    from fedsplit.federation.site.site import Site

DAY = 86400.0
"""Seconds in which questions and studies of a day are counted."""


def admit(site: Site, inquiry: Inquiry) -> tuple[StudyState, Sent | None]:
    """The study of a question, and what was sent in answer to this very question before."""
    state = site.record.study(inquiry.study)
    if state is None:
        raise RequestError("this study was not proposed here: propose it again")
    if inquiry.head is not None and not site.record.contains(inquiry.head):
        raise StateError(LOG_SHORT)
    study = state.study
    if state.decision != "approved":
        raise RequestError(f"its owner's decision on this study is: {state.decision}")
    # the policy may have become stricter since the approval
    if objection := site.policy.objection(study, site.key):
        raise RequestError(f"its owner's policy does not allow the study: {objection}")
    asked = digest(inquiry.question)
    sent = site.record.sent(study.digest, inquiry.number)
    if sent is not None:
        # A mask must never be used for two different answers.
        if sent.digest != asked:
            raise RequestError(f"exchange {inquiry.number} was answered to another question")
        return state, sent
    if not study.secure:
        sent = site.record.sent_to(study.digest, asked)
        if sent is not None:
            return state, sent
    now = site.record.now()
    if now > site.clock() + DAY:
        site.say("the clock was set back by more than a day: time goes on from the log's last")
    _check_budget(site.record, site.policy, state, now)
    return state, None


def refusals(record: Record, state: StudyState) -> int:
    """How many questions were refused since the owner has looked at them."""
    return record.count("refused", state.study.digest, after=record.reviewed(state))


def day(time: float) -> str:
    """The day of a time, as 2030-12-31."""
    return datetime.fromtimestamp(time, UTC).date().isoformat()


def ended(record: Record, policy: Policy, state: StudyState, now: float) -> tuple[str, str]:
    """Why an approval does not hold any more, for the coordinator and for the owner; or empty."""
    if (refused := refusals(record, state)) >= policy.refusals_before_halt:
        return (
            f"{refused} questions were refused: its owner has to let it go on",
            "halted, for you to look at what was refused: site resume",
        )
    approved = record.scalar("SELECT time FROM log WHERE number = ?", state.since)
    if now > approved + policy.approved_days * DAY:
        return (
            "the approval of the study has ended: its owner has to renew it",
            "for you: the approval has ended, site approve renews it",
        )
    if state.study.until and day(now) > state.study.until:
        until = f"ended on {state.study.until}"
        return f"the study {until}", f"for nobody: it {until}"
    return "", ""


def _check_budget(record: Record, policy: Policy, state: StudyState, now: float) -> None:
    """Raise RequestError if a study, or a day, has had all that the owner allows."""
    study, today = state.study, now - DAY
    if why := ended(record, policy, state, now)[0]:
        raise RequestError(why)
    if record.count("answer", study.digest) >= study.questions:
        raise RequestError(f"the study has had its {study.questions} questions")
    most = policy.questions_per_day
    if most is not None and record.count("answer", since=today) >= most:
        raise RequestError(f"its owner allows {most} questions a day (questions_per_day)")
    most = policy.studies_per_day
    if most is not None:
        begun = record.studies_begun(today)
        if study.digest not in begun and len(begun) >= most:
            raise RequestError(f"its owner allows {most} studies a day (studies_per_day)")


def check_names(name: str, study: Study, request: Request) -> None:
    """Raise RequestError for a question to another site, or to other sums than it is about."""
    if request.sums != study.secure:
        raise RequestError("a question for sums, or for single answers, in the other study")
    if study.secure and request.m != len(study.members):
        raise RequestError(f"the sums are of {len(study.members)} sites, not {request.m}")
    if study.secure:
        return
    for each in request.parts:
        coding = getattr(each, "coding", None)
        if coding is not None and coding.names != (name,):
            raise RequestError(f"this is {name}, and {coding.names} was asked")


def check_spent(policy: Policy, disclosed: DisclosedRows, study: Study, known: Known) -> None:
    """Raise RequestError if a study with noise would spend more than its owner allows."""
    privacy = getattr(study.analysis, "privacy", None)
    if privacy is None:
        return
    epsilon, delta = disclosed.spent(known, but=study.digest)
    most = policy.privacy_epsilon
    if most is not None and epsilon + privacy.epsilon > most:
        raise RequestError(f"privacy_epsilon: {epsilon:g} of {most:g} is spent")
    if policy.limits_noise and delta + privacy.delta > policy.privacy_delta:
        raise RequestError(f"privacy_delta: {delta:g} of {policy.privacy_delta:g} is spent")
