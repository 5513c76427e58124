"""Where a site stands: its studies, who has to do something, what is left of budgets."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING, NamedTuple

from fedsplit.federation import authority
from fedsplit.federation.site.admission import DAY, ended, refusals
from fedsplit.federation.site.record import StudyState
from fedsplit.federation.study import Study

if TYPE_CHECKING:
    from fedsplit.federation.site.site import Site


class StudyStatus(NamedTuple):
    """Where a study stands.

    Attributes
    ----------
    study : Study
    decision : str
        As in ``StudyState``.
    answered, refused : int
        Questions; refused ones since the owner has looked at them.
    waits : str
        For whom or what.
    """

    study: Study
    decision: str
    answered: int
    refused: int
    waits: str


class Status(NamedTuple):
    """Where a site stands.

    Attributes
    ----------
    studies : list of StudyStatus
    questions, begun : int
        Questions that were answered, and studies that began, within 24 hours.
    spent : tuple of float
        ε and δ of all studies with noise about the rows.
    certificates : dict of str to date
        When each ends.
    """

    studies: list[StudyStatus]
    questions: int
    begun: int
    spent: tuple[float, float]
    certificates: dict[str, date]


def status_of(site: Site, now: float) -> Status:
    """Where a site stands at some time (seconds since 1970)."""
    record = site.record
    certificates = {
        path.stem: authority.read_certificate(path).ends.date()
        for path in sorted(site.folder.glob("*.crt"))
    }
    return Status(
        [_study(site, each, now) for each in site.studies()],
        record.count("answer", since=now - DAY),
        len(record.studies_begun(now - DAY)),
        site.spent(),
        certificates,
    )


def _study(site: Site, state: StudyState, now: float) -> StudyStatus:
    study, waits = state.study, ""
    if state.decision == "undecided":
        waits = "for your decision: site approve, or site decline"
    elif state.decision == "approved":
        waits = ended(site.record, site.policy, state, now)[1] or "for the coordinator"
        if waits == "for the coordinator" and study.other_dialogue:
            waits = f"for you: {study.other_dialogue}"
    answered, refused = site.record.count("answer", study.digest), refusals(site.record, state)
    return StudyStatus(study, state.decision, answered, refused, waits)
