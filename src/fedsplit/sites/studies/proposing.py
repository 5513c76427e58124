"""The study of a fit between organisations: made from its options, and proposed to the clients."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict

from fedsplit.channels.channel import Request
from fedsplit.data.formula.formula import Formula, quoted
from fedsplit.errors import InputError, TooFewClients, listed
from fedsplit.regression.client.guards.rules import WARN
from fedsplit.regression.client.plan import columns_of
from fedsplit.regression.options import Regression
from fedsplit.remote.messages import Signature, Transport, read_reply, write_request
from fedsplit.sites.studies.limits import limits_of
from fedsplit.sites.studies.proposal import Decision, Finish, Propose
from fedsplit.sites.studies.study import AS_READ, OPTIONS, Setting, Study
from fedsplit.texts import attributed

PROPOSAL_TIMEOUT = 30.0
"""Seconds that a client has to say that a study is pending: its owner has all the time."""

FINISH_TIMEOUT = 10.0
"""Seconds that clients have to take note of the end."""


def make_study(
    options: Regression,
    members: Mapping[str, str],
    coordinator: str,
    least: int | None,
) -> Study:
    """The study of a fit.

    Parameters
    ----------
    options : Regression
        Of the fit, with a formula that names every column.
    members : mapping of str to str
        The clients, with the fingerprints of their keys.
    coordinator : str
        The fingerprint of the key that signs it.
    least : int or None
        The fewest clients with which the run continues; None is all of them.
    """
    formula = Formula(str(options.formula))
    settings = options.settings
    extra = columns_of(settings.weights, settings.offset, settings.exposure)
    used = list(dict.fromkeys([*formula.columns, *extra, *settings.columns]))
    for column in settings.declared:
        if column not in used:
            raise InputError(f"types: {column} is not in the model, which uses {listed(used, 12)}")
    chosen: dict[str, Setting] = json.loads(json.dumps(asdict(settings)))
    least = min(least or len(members), len(members))
    limits = limits_of(
        settings.rounds, settings.firth, len(members), least, settings.secure, settings.dp
    )
    return Study(
        formula=formula.text,
        family=settings.chosen_family.name,
        columns={name: settings.declared.get(name, AS_READ) for name in used},
        options={name: chosen[name] for name in OPTIONS},
        questions=limits.questions,
        points=limits.points,
        predictor=WARN.predictor,
        members=dict(members),
        coordinator=coordinator,
        least=least,
        secure=settings.secure,
    )


def whole_formula(options: Regression) -> Formula:
    """The formula of a fit, with every column named: no client tells names of columns by itself.

    Parameters
    ----------
    options : Regression
    """
    text = options.formula
    if text is None:
        text = f"{quoted([str(options.target)])} ~ ."
    formula = Formula(text)
    if not formula.open:
        return formula
    if not options.columns:
        raise InputError(
            "between organisations clients do not disclose the names of their columns: name the "
            "covariates with --columns, or in the formula"
        )
    return formula.expanded(options.columns)


class Proposal:
    """A study on its way to the clients' owners.

    Parameters
    ----------
    transport : Transport
    study : Study
    signature : Signature

    Attributes
    ----------
    study : Study
    decisions : dict of Decision
        What is known of every client.
    unanswered : dict of str to str
        Why the clients have not answered that were asked last and did not.
    """

    def __init__(self, transport: Transport, study: Study, signature: Signature) -> None:
        self._transport = transport
        self.study = study
        self.decisions: dict[str, Decision] = {}
        self.unanswered: dict[str, str] = {}
        question = Propose(study.canonical.decode(), signature)
        self._message = write_request(Request(question))

    def ask(self, names: Sequence[str]) -> dict[str, Decision]:
        """What the owners have decided; those of clients that do not answer are left out.

        Raises
        ------
        InputError
            If a client cannot take part in such a study.
        """
        replies = self._transport.send(dict.fromkeys(names, self._message), PROPOSAL_TIMEOUT)
        found = {}
        self.unanswered = {}
        for name, (message, trouble, _) in replies.items():
            if message is None:
                self.unanswered[name] = trouble
                continue
            reply = read_reply(message, Decision, 0.0)
            if reply.outcome == "refused":
                raise InputError(attributed(name, reply.text))
            if reply.outcome != "answer":
                self.unanswered[name] = reply.text
            elif reply.value.study == self.study.hash:
                found[name] = reply.value
            else:
                self.unanswered[name] = "it answers about another study"
        return found

    def wait(
        self,
        names: Sequence[str],
        report: Callable[[Mapping[str, Decision], Mapping[str, str]], object],
        pause: Callable[[], object],
    ) -> None:
        """Wait until every owner has approved, however long it takes.

        Parameters
        ----------
        names : sequence of str
            The clients.
        report : callable
            Called with the decisions that are known, and why others have not answered, whenever
            either changes.
        pause : callable
            Called before owners are asked again.

        Raises
        ------
        TooFewClients
            If an owner declines.
        """
        known = self.decisions
        while True:
            waiting = [name for name in names if _state(known, name) != "approved"]
            before = (known, self.unanswered)
            known = self.decisions = known | self.ask(waiting)
            if (known, self.unanswered) != before:
                report(known, self.unanswered)
            for name, decision in known.items():
                if decision.state == "declined":
                    raise TooFewClients(_declined(name, decision.reason))
            if all(_state(known, name) == "approved" for name in names):
                return
            pause()

    def finish(self, names: Sequence[str], converged: bool, summary: str) -> None:
        """Tell the clients the end and its result; those that are away are not waited for."""
        request = Request(Finish(converged, summary), study=self.study.hash)
        self._transport.send(dict.fromkeys(names, write_request(request)), FINISH_TIMEOUT)


def _state(known: Mapping[str, Decision], name: str) -> str:
    if name not in known:
        return "absent"
    return known[name].state


def _declined(name: str, reason: str) -> str:
    text = f"client {name} declined the study"
    if reason:
        text += f" ({' '.join(reason[:300].split())})"
    return (
        f"{text}: talk to its owner, or name the others with --clients, which makes another study"
    )
