"""Every answer in a site's record computed again: for an audit, and for what they disclosed."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from fedsplit import fixed_point
from fedsplit.errors import InputError
from fedsplit.federation.keys import digest
from fedsplit.federation.messages import JOINING, LogHead
from fedsplit.federation.questions import decode_answer, decode_request
from fedsplit.federation.site.disclosed import RecordedLedger, TrialLedger
from fedsplit.federation.site.record import LogEntry, Sent, StudyState
from fedsplit.federation.site.rows import StudyRows
from fedsplit.federation.site.transcript import agrees

if TYPE_CHECKING:
    from fedsplit.federation.site.site import Site


@dataclass
class Audit:
    """What an audit found.

    Attributes
    ----------
    entries : int
        Of the log.
    head : LogHead
        The last of them.
    exact, close : int
        Answers that are the same when they are computed again: to the bit, or to rounding, as by
        another version of a library.
    with_noise : int
        Answers with noise, which is drawn once and not kept: only their entries are checked.
    wrong : list of tuple of int and str
        Entries with what is wrong about them.
    """

    entries: int
    head: LogHead
    exact: int = 0
    close: int = 0
    with_noise: int = 0
    wrong: list[tuple[int, str]] = field(default_factory=list)


def audited(site: Site, head: LogHead | None = None) -> Audit:
    """Check a record.

    Parameters
    ----------
    site : Site
    head : LogHead, optional
        An entry that the log must have, from the coordinator or another member: without one, that
        entries are missing at its end is not noticed.
    """
    record = site.record
    log = record.log()
    found = Audit(len(log), record.head())
    if first := record.first_wrong_entry():
        found.wrong.append((first, "was changed, or one before it is missing"))
    if head is not None and not record.contains(head):
        found.wrong.append((head.number, "is not the one that others have, or is missing"))
    ledgers: dict[int, RecordedLedger] = {}
    # by study, its rows as they were when it was answered, and what the next answer depends on
    replays: dict[bytes, tuple[StudyRows, bytes | None]] = {}
    for entry in log:
        if entry.event != "answer":
            continue
        try:
            state, sent = _answer(site, entry)
            if entry.exchange == JOINING:
                continue
            if getattr(state.study.analysis, "privacy", None) is not None:
                found.with_noise += 1
                continue
            if entry.study not in replays:
                replays[entry.study] = _rows(site, state, ledgers), None
            rows, memory = replays[entry.study]
            value, memory = _again(site, state, sent, rows, memory)
            replays[entry.study] = rows, memory
            if value == sent.value:
                found.exact += 1
            elif _same(site, state, sent, value):
                found.close += 1
            else:
                found.wrong.append((entry.number, "is another answer than that of the rows"))
        except InputError as error:
            found.wrong.append((entry.number, f"cannot be computed again: {error}"))
    return found


def recall(site: Site, last: LogHead) -> None:
    """Enter what was disclosed after an answer into the machine's record, which has lost it.

    Parameters
    ----------
    site : Site
    last : LogHead
        The head of the site's log before the last answer that this record has.
    """
    # what was answered is disclosed, whatever the rules are now
    most, own = sys.maxsize, site.policy.about_rows
    rules = replace(
        own, smallest=1, rows=1, parameters=most, predictor=most, points=most, leverage=None
    )
    answers = [e for e in site.record.log() if e.event == "answer" and e.exchange != JOINING]
    # by study, its rows as they were when it was answered, and what the next answer depends on
    replays: dict[bytes, tuple[StudyRows, bytes | None]] = {}
    for study in {each.study for each in answers if each.number > last.number + 1}:
        for entry in (each for each in answers if each.study == study):
            state, sent = _answer(site, entry)
            source, known = site.copies.open(state.copy)
            privacy = getattr(state.study.analysis, "privacy", None)
            if privacy is not None:
                site.disclosed.spend(known, study, privacy.epsilon, privacy.delta)
                break
            if study not in replays:
                ledger = site.disclosed.ledger(known)
                rows = StudyRows(site.policy.name, source, known.ids, ledger, rules)
                replays[study] = rows, None
            rows, memory = replays[study]
            _, memory = _again(site, state, sent, rows, memory)
            replays[study] = rows, memory


def _answer(site: Site, entry: LogEntry) -> tuple[StudyState, Sent]:
    """What was sent, which must be what the log says."""
    state = site.record.study(entry.study)
    sent = site.record.sent(entry.study, entry.exchange)
    if state is None or state.study.digest != entry.study or sent is None:
        raise InputError("its study, or what was sent, is missing or was changed")
    asked = digest(state.study.content if entry.exchange == JOINING else sent.question)
    if sent.digest != asked or digest(asked, sent.value) != entry.content:
        raise InputError("what was asked or sent was changed")
    return state, sent


def _rows(site: Site, state: StudyState, ledgers: dict[int, RecordedLedger]) -> StudyRows:
    """The rows of a study, of which nothing but what the log has was disclosed."""
    source, known = site.copies.open(state.copy)
    if known.family not in ledgers:
        ledgers[known.family] = TrialLedger(site.disclosed, known.family, [], {})
    return StudyRows(
        site.policy.name, source, known.ids, ledgers[known.family], site.policy.about_rows
    )


def _again(
    site: Site, state: StudyState, sent: Sent, rows: StudyRows, memory: bytes | None
) -> tuple[bytes, bytes | None]:
    request = site.prepared(state.study, rows, decode_request(sent.question))
    return site.computed(state, sent.question, request, sent.transcript, rows, memory)


def _same(site: Site, state: StudyState, sent: Sent, value: bytes) -> bool:
    """Whether two answers differ by no more than rounding."""
    if not state.study.secure:
        request = decode_request(sent.question)
        return agrees(decode_answer(request, value), decode_answer(request, sent.value))
    if len(value) != len(sent.value):
        return False
    other = site.unmasked(state, sent._replace(value=value))
    return agrees(fixed_point.decode(other), fixed_point.decode(site.unmasked(state, sent)))
