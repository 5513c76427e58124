"""A study with secure sums between organisations: the same table, and what sites refuse."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

import fedsplit as fs
from fedsplit import fixed_point
from fedsplit.channels.channel import Reply, Request, Step
from fedsplit.channels.checkpoint import Checkpoint
from fedsplit.clients.local_models import LocalModel
from fedsplit.clients.questions import Gradient
from fedsplit.commands.app import run
from fedsplit.errors import InputError, TooFewClients
from fedsplit.regression.client.guards.rules import Rules
from fedsplit.regression.result.model import Model
from fedsplit.remote.messages import (
    answer_type_of,
    content_digest,
    read_reply,
    read_request,
    write_request,
)
from fedsplit.sites.secure.letters import write_letter
from fedsplit.sites.secure.participation import SecureStudy
from fedsplit.sites.service import ALLOWED
from fedsplit.sites.studies.hashes import short
from fedsplit.sites.studies.proposal import ShareKeys
from fedsplit.sites.studies.study import Study
from secure_federation import SecureFederation, about_study
from test_service import FORMULA


@pytest.fixture
def federation(tmp_path: Path) -> SecureFederation:
    return SecureFederation(tmp_path)


def approved(federation: SecureFederation, removal: tuple[str, ...] = (), **more: object) -> Study:
    study = federation.study(**more)  # type: ignore[arg-type]  # settings of a fit
    federation.decide(study, removal)
    return study


def pooled(federation: SecureFederation, names: tuple[str, ...] = ("a", "b", "c", "d")) -> Model:
    files = [str(federation.folder / f"{name}.csv") for name in names]
    return fs.fit(files, FORMULA, family="poisson")


def assert_same(model: Model, reference: Model) -> None:
    assert model.converged
    assert model.bse is not None
    assert reference.bse is not None
    assert np.abs((model.params - reference.params) / reference.bse).max() < 1e-9
    np.testing.assert_allclose(model.bse, reference.bse, rtol=1e-9)


class Finished(NamedTuple):
    """A federation whose study has a result."""

    federation: SecureFederation
    study: Study
    model: Model


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    federation = SecureFederation(tmp_path_factory.mktemp("finished"))
    study = approved(federation)
    return Finished(federation, study, federation.summed_fit(study))


def test_sites_that_mask_their_answers_give_the_pooled_table(finished: Finished) -> None:
    assert_same(finished.model, pooled(finished.federation))


def test_what_sites_have_masked_comes_out_of_their_logs_again(
    finished: Finished, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["audit", str(finished.federation.folder / "kept a")]) == 0
    assert "7 answers reproduced, 7 of them exactly" in capsys.readouterr().out


def test_what_the_server_sees_of_one_site_looks_random(finished: Finished) -> None:
    seen = []
    for name, message, reply in finished.federation.letters:
        if name == "b" and not about_study(message):
            request = read_request(message, ALLOWED)
            seen.append(read_reply(reply, answer_type_of(request), 0.0).value.ravel())
    bits = np.unpackbits(np.concatenate(seen).view(np.uint8))
    n = len(bits)
    assert n > 50_000
    for distance in (1, 64, 256):
        agree = np.count_nonzero(bits[distance:] == bits[:-distance])
        assert abs(agree - (n - distance) / 2) < 5 * np.sqrt(n) / 2
    assert abs(np.count_nonzero(bits) - n / 2) < 5 * np.sqrt(n) / 2


def test_the_last_digits_of_what_a_site_adds_are_random(finished: Finished) -> None:
    federation, study = finished.federation, finished.study
    site = SecureStudy(federation.studies("b").path(study.hash), study.hash, study.members, "b")
    checked = 0
    for name, message, reply in federation.letters:
        request = read_request(message, ALLOWED)
        if name == "b" and isinstance(request.question, LocalModel):
            assert request.step is not None
            masked = read_reply(reply, answer_type_of(request), 0.0).value.view(np.uint64)
            digest = content_digest(request)
            plain = site.unmasked(request.step.number, request.step.members, digest, masked)
            numbers = fixed_point.decode(plain)
            broken = (numbers != np.rint(numbers)) & (np.abs(numbers) > 2.0**-10)
            # the digits of a float64 of this size end before the last limb
            assert (plain[broken, 0] != 0).all()
            assert not plain[~broken & (numbers == np.rint(numbers)), 0].any()
            checked += int(np.count_nonzero(broken))
    assert checked > 50


def test_sites_that_are_restarted_for_every_message_give_the_same_bits(finished: Finished) -> None:
    other = SecureFederation(finished.federation.folder)
    other.restarts = True
    assert (
        other.summed_fit(finished.study).params.to_numpy().tolist()
        == finished.model.params.to_numpy().tolist()
    )


def test_a_site_that_is_away_for_a_while_changes_nothing(federation: SecureFederation) -> None:
    study = approved(federation)
    once = federation.summed_fit(study)
    for stage in (0, federation.asked - 1):
        left = 2

        def before(number: int, stage: int = stage) -> None:
            nonlocal left
            federation.away = set()
            if number >= stage and left:
                left -= 1
                federation.away = {"c"}

        federation.letters.clear()
        federation.before = before
        again = federation.summed_fit(study)
        assert left == 0
        assert again.params.to_numpy().tolist() == once.params.to_numpy().tolist()
        assert {each.what for each in again.run.incidents} == {"c: it is not connected"}


def test_a_run_that_stops_after_its_first_or_before_its_last_question_is_resumed(
    federation: SecureFederation,
) -> None:
    study = approved(federation)
    once = federation.summed_fit(study)
    for stage in (1, federation.asked - 1):
        folder = federation.folder / f"checkpoint {stage}"

        def before(number: int, stage: int = stage) -> None:
            federation.away = set()
            if number >= stage:
                federation.away = {"b"}

        federation.letters.clear()
        federation.before = before
        with pytest.raises(TooFewClients, match="b: it is not connected"):
            federation.summed_fit(study, checkpoint=Checkpoint(folder))
        federation.before = lambda number: None
        federation.away = set()
        federation.start()  # all of them, as new processes
        again = federation.summed_fit(study, checkpoint=Checkpoint(folder, resume=True))
        assert_same(again, once)


def test_the_run_goes_on_without_a_site_whose_owner_allows_that(
    federation: SecureFederation,
) -> None:
    study = approved(federation, removal=("d",), least=3)

    def before(number: int) -> None:
        if number == 4:
            federation.away = {"d"}

    federation.before = before
    model = federation.summed_fit(study)
    assert list(model.removed) == ["d"]
    assert model.run.summed == ("a", "b", "c")
    assert_same(model, pooled(federation, ("a", "b", "c")))
    # it stays out, also for a server that has forgotten that
    federation.away = set()
    (federation.folder / "fit" / "keys.json").unlink()
    with pytest.raises(InputError, match="not, or no longer, in the study"):
        federation.summed_fit(study)


def test_a_run_that_a_site_has_left_is_resumed_without_it(federation: SecureFederation) -> None:
    study = approved(federation, removal=("d",), least=3)

    def before(number: int) -> None:
        if number >= 4:
            federation.away.add("d")
        if number >= 7:
            federation.away.add("b")

    federation.before = before
    folder = federation.folder / "checkpoint"
    with pytest.raises(TooFewClients, match="b: it is not connected"):
        federation.summed_fit(study, checkpoint=Checkpoint(folder))
    federation.before = lambda number: None
    federation.away = {"d"}
    federation.start()
    model = federation.summed_fit(study, checkpoint=Checkpoint(folder, resume=True))
    assert list(model.removed) == ["d"]
    assert_same(model, pooled(federation, ("a", "b", "c")))


def test_without_its_owners_consent_the_run_waits_and_stops(federation: SecureFederation) -> None:
    study = approved(federation, least=3)
    federation.before = lambda number: federation.away.update("d" * (number == 4))
    with pytest.raises(TooFewClients, match="d: it is not connected"):
        federation.summed_fit(study)


def test_the_server_cannot_remove_a_site_that_does_not_allow_it(
    federation: SecureFederation,
) -> None:
    study = approved(federation, removal=("a", "b", "c"), least=3)
    federation.exchange(study)
    for name, message, _ in recorded(federation, study):
        if name == "d":
            continue
        request = read_request(message, ALLOWED)
        assert request.step is not None
        fewer = Step(request.step.number + 1, ("a", "b", "c"))
        reply = asked(federation, request._replace(step=fewer, m=3), name)
        assert "without d, whose owner has not allowed that" in reply.text


def recorded(federation: SecureFederation, study: Study) -> list[tuple[str, bytes, bytes]]:
    """The messages of the first exchange of a study, with the replies."""
    federation.letters.clear()

    class Enough(Exception):
        pass

    def before(number: int) -> None:
        if number == 1:
            raise Enough

    federation.before = before
    with pytest.raises(Enough):
        federation.summed_fit(study)
    federation.before = lambda number: None
    return [each for each in federation.letters if not about_study(each[1])]


def asked(federation: SecureFederation, request: Request, name: str = "a") -> Reply:
    message = federation.sites[name].reply(write_request(request))
    return read_reply(message, answer_type_of(request), 0.0)


def test_a_malicious_server_gets_one_answer_of_each_site_and_exchange(
    federation: SecureFederation,
) -> None:
    study = approved(federation, least=3)
    first = {name: (message, reply) for name, message, reply in recorded(federation, study)}
    request = read_request(first["a"][0], ALLOWED)
    step = request.step
    assert step is not None
    sent = read_reply(first["a"][1], answer_type_of(request), 0.0).value
    # the same again, from a site whose file has changed meanwhile, and that was started again
    table = federation.folder / "a.csv"
    table.write_text(table.read_text(encoding="utf-8").replace("west", "east"), encoding="utf-8")
    federation.start()
    assert np.array_equal(asked(federation, request).value, sent)
    lines = [
        (request._replace(step=None, sums=False), "no client answers for itself"),
        (request._replace(step=Step(step.number - 1, step.members)), "was answered before"),
        (request._replace(question=Gradient(np.zeros(3)), key="k"), "was answered before"),
        (request._replace(step=Step(step.number, ("a", "b", "c")), m=3), "was answered before"),
        (request._replace(step=Step(step.number + 1, ("a", "b", "c")), m=3), "has not allowed"),
        (request._replace(step=Step(step.number + 1, ("a", "b")), m=2), "fewer than 3"),
        (request._replace(step=Step(step.number + 1, (*step.members, "e")), m=5), "not, or no"),
        (request._replace(step=Step(step.number + 1, step.members), m=2), "not of 2"),
    ]
    for changed, what in lines:
        reply = asked(federation, changed)
        assert reply.outcome == "refused"
        assert what in reply.text


def test_keys_that_a_server_swaps_are_refused(federation: SecureFederation) -> None:
    study = approved(federation)
    proposal = federation.proposal(study)
    proposal.wait(federation.names, lambda known, unanswered: None, lambda: None)
    letters = [decision.letter for decision in proposal.decisions.values()]
    own = [letter for letter in letters if letter is not None]
    forged = write_letter(
        study.hash, "b", X25519PrivateKey.generate(), False, Ed25519PrivateKey.generate()
    )
    instead = [forged if letter.name == "b" else letter for letter in own]
    reply = federation.ask(ShareKeys(instead), study.hash)
    assert "signed by another key than the one that its partners approved" in reply.text
    assert federation.ask(ShareKeys(own), study.hash).outcome == "answer"


def test_owners_see_their_partners_keys_and_what_removal_means(
    federation: SecureFederation,
) -> None:
    study = federation.study(least=3)
    federation.proposal(study).ask(federation.names)
    words = " ".join(federation.words(study).split())
    assert "everything masked: the server can read the sum over all clients" in words
    assert f"b: key {short(federation.fingerprint('b')[:32])} … NEW: compare it with them" in words
    assert "the server can then compute everything that this client alone has sent" in words
    federation.decide(study)
    federation.exchange(study)
    again = federation.study(ridge=1.0)
    federation.proposal(again).ask(federation.names)
    words = " ".join(federation.words(again).split())
    assert "as you approved before" in words
    assert "removal" not in words
    swapped = replace(again, members={**again.members, "b": federation.fingerprint("a")[::-1]})
    federation.propose(swapped)
    assert "ANOTHER KEY THAN BEFORE: ask them why" in " ".join(federation.words(swapped).split())


def test_without_a_person_only_partners_that_are_known_are_approved(tmp_path: Path) -> None:
    federation = SecureFederation(tmp_path, "always")
    study = federation.study()
    assert federation.propose(study).state == "pending"
    federation.decide(study)
    assert federation.propose(study).letter is not None
    assert federation.propose(federation.study(ridge=1.0)).state == "approved"


def test_owners_see_whom_two_studies_tell_apart(tmp_path: Path) -> None:
    federation = SecureFederation(tmp_path, "always")
    study = approved(federation)
    federation.summed_fit(study)
    fewer = federation.study(ridge=1.0)
    without = replace(
        fewer, least=3, members={name: fewer.members[name] for name in ("a", "b", "c")}
    )
    assert federation.propose(fewer).state == "approved"
    assert federation.propose(without).state == "pending"
    federation.mode = without.hash  # which says nothing of other studies
    federation.start()
    assert federation.propose(without).state == "pending"
    words = " ".join(federation.words(without).split())
    assert f"you took part in study {short(study.hash[:16])} …" in words
    assert "the server can compute what d alone sent, as the difference of two sums" in words


def test_studies_that_were_approved_together_do_not_both_begin(tmp_path: Path) -> None:
    federation = SecureFederation(tmp_path, "always")
    federation.exchange(approved(federation))  # the partners are known
    first = federation.study(ridge=1.0)
    fewer = federation.study(ridge=2.0)
    three = {name: fewer.members[name] for name in ("a", "b", "c")}
    second = replace(fewer, least=3, members=three)
    # neither exposes anybody as long as the other has not begun
    for study, names in ((first, federation.names), (second, ("a", "b", "c"))):
        federation.exchange(study, names)
    [[_, message, _], *_] = recorded(federation, first)
    request = read_request(message, ALLOWED)
    other = request._replace(study=second.hash, step=Step(1, tuple(three)), m=3)
    reply = asked(federation, other)
    assert reply.outcome == "refused"
    assert "it would tell what d alone sent: its owner has to approve that" in reply.text
    # its owner may, having read that
    assert federation.propose(second).state == "pending"
    assert "what d alone sent" in " ".join(federation.words(second).split())
    federation.studies("a").decide(second.hash, "approved", "fedsplit approve")
    assert asked(federation, other).outcome == "answer"


def test_an_open_study_that_exposes_clients_of_secure_sums_waits_for_a_person(
    tmp_path: Path,
) -> None:
    federation = SecureFederation(tmp_path, "always")
    recorded(federation, approved(federation))
    everybody = federation.study(secure=False)
    assert federation.propose(everybody).state == "approved"
    fewer = federation.study(secure=False, ridge=1.0)
    without = replace(fewer, least=3, members={name: fewer.members[name] for name in "abc"})
    assert federation.propose(without).state == "pending"
    assert "what d alone sent" in " ".join(federation.words(without).split())


def test_removals_in_two_studies_do_not_expose_who_allowed_none(
    federation: SecureFederation,
) -> None:
    for ridge, left in ((1.0, ("b", "c", "d")), (2.0, ("a", "c", "d"))):
        # in one study a leaves, in the other b: c and d alone would be the difference
        study = approved(federation, removal=("a", "b"), least=3, ridge=ridge)
        [message] = [each for name, each, _ in recorded(federation, study) if name == "c"]
        request = read_request(message, ALLOWED)
        assert request.step is not None
        step = Step(request.step.number + 1, left)
        reply = asked(federation, request._replace(step=step, m=3), "c")
        assert reply.outcome == ("answer" if ridge == 1.0 else "refused")
    assert "the sum would tell what c, d alone sent, whose owner has not allowed" in reply.text


def test_a_policy_names_the_partners(tmp_path: Path) -> None:
    federation = SecureFederation(tmp_path)
    known = {name: federation.fingerprint(name) for name in federation.names}
    for rules, state in (
        (Rules(partners=tuple(known.items())), "approved"),
        (Rules(partners=(*list(known.items())[:3], ("d", "0" * 64))), "declined"),
        (Rules(partners=tuple(known.items())[:3]), "declined"),
        (Rules(secure=True, partners=tuple(known.items())), "approved"),
    ):
        federation.rules = {"rules": rules}
        federation.mode = "always"
        federation.start()
        study = federation.study(ridge=float(len(federation.studies().hashes())))
        decision = federation.propose(study)
        assert decision.state == state
        assert ("partners: d" in decision.reason) == (state == "declined")


def test_a_key_that_the_coordinator_made_is_refused(tmp_path: Path) -> None:
    federation = SecureFederation(tmp_path)
    study = federation.study()
    (tmp_path / "own" / "a.csr").unlink()
    with pytest.raises(InputError, match="its key was made by the coordinator"):
        federation.propose(study)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"least": 2}, "of 3 clients at least"),
        ({"members": {"a": "", "b": "", "c": "", "d": ""}}, "need keys"),
        # owners would see the first one, and the coordinator could have the second
        (
            {"members": {**dict.fromkeys("acd", "0" * 64), "b": f"{'0' * 64} {'1' * 64}"}},
            "b has se",
        ),
    ],
)
def test_a_study_whose_sums_would_not_be_secure_is_refused(
    federation: SecureFederation, change: Mapping[str, Any], what: str
) -> None:
    with pytest.raises(InputError, match=what):
        federation.propose(replace(federation.study(), **change))


@pytest.mark.parametrize(
    ("more", "what"),
    [
        (["--insecure"], "--secure needs keys that the clients made"),
        (["--keys", "keys", "--clients", "2"], "--secure needs 3 clients at least"),
        (["--keys", "keys", "--min-clients", "2"], "--secure needs 3 clients at least"),
        (["--keys", "keys"], "declare the types of column y, x, ward, by the option types"),
        (["--keys", "keys", "--types", "y=number,x=number,ward=text"], "levels of column ward"),
    ],
)
def test_what_secure_sums_need_is_said_before_anybody_is_asked(
    federation: SecureFederation,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    more: list[str],
    what: str,
) -> None:
    monkeypatch.chdir(federation.folder)
    model = ["--formula", FORMULA, "--family", "poisson", "--secure", "--out", "out"]
    assert run(["server", "--clients", "3", *more, *model]) == 2
    assert what in capsys.readouterr().err


def test_a_site_with_a_level_that_is_not_declared_refuses_and_its_owner_sees_which(
    federation: SecureFederation,
) -> None:
    table = federation.folder / "b.csv"
    table.write_text(table.read_text(encoding="utf-8").replace("west", "best"), encoding="utf-8")
    federation.start()
    study = approved(federation)
    with pytest.raises(InputError, match="client b: refused by its owner"):
        federation.summed_fit(study)
    assert any("best" in event.text for event in federation.seen)


def test_the_guards_of_a_site_hold_in_secure_sums(tmp_path: Path) -> None:
    federation = SecureFederation(tmp_path, strict=True)
    model = federation.summed_fit(approved(federation))
    assert_same(model, pooled(federation))
    (tmp_path / "few").mkdir()
    federation = SecureFederation(tmp_path / "few", strict=True)
    few = tmp_path / "few" / "c.csv"
    few.write_text("\n".join(few.read_text(encoding="utf-8").splitlines()[:8]), encoding="utf-8")
    shutil.rmtree(tmp_path / "few" / "kept c")
    federation.start()
    with pytest.raises(InputError, match="client c: refused by its owner's rules"):
        federation.summed_fit(approved(federation))
