"""``fedsplit reproduce``: small sizes here, the paper's in the tests marked slow."""

import base64
import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedsplit as fs
from fedsplit.clients.questions import Curvature
from fedsplit.commands.app import run
from fedsplit.methods.method import Method
from fedsplit.paper import reproduction as module
from fedsplit.paper.comparison import compare
from fedsplit.paper.experiment import Experiment, Measurements, load
from fedsplit.paper.experiments import EXPERIMENTS
from fedsplit.paper.reproduction import reproduce
from fedsplit.paper.runs import SolvedProblem, floor, linear_fit, portion, rounds_to

pytestmark = pytest.mark.xdist_group("paper")  # the experiments run once

SMALL: dict[str, dict[str, Any]] = {
    "fig1": {"m": 4, "d": 5, "n": 15, "rounds": 60},
    "fig2a": {"m": 4, "d": 5, "n": 40, "rounds": 40},
    "fig2b": {"m": 4, "d": 5, "n": 40, "rounds": 40},
    "fig3": {"m": 3, "d": 4, "n": 60, "rounds": 40, "literal_rounds": 60, "theorem_rounds": 20},
    "fig4a": {"m": 3, "d": 5, "n": 10, "seeds": [0, 1], "rounds": 200},
    "fig4b": {"m": 3, "d": 5, "n": 10, "seeds": [0, 1], "kappas": [1.0, 10.0, 100.0]},
}
FIGURES = [f"{name}{kind}" for name in EXPERIMENTS for kind in ("", "-ours")] + ["fig3-literal"]


@pytest.fixture(autouse=True)
def small_experiments(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """The same experiments in small, but for the slow tests."""
    if request.node.get_closest_marker("slow") or request.node.get_closest_marker("browser"):
        return
    for name, experiment in list(EXPERIMENTS.items()):
        small = replace(experiment, settings=dict(experiment.settings) | SMALL[name])
        monkeypatch.setitem(EXPERIMENTS, name, small)
    monkeypatch.setattr(module, "WORKERS", 1)
    monkeypatch.setattr(module, "_compute", compute_here)


@pytest.fixture
def undrawn(small_experiments: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the figures, which take most of the time."""
    for name, experiment in list(EXPERIMENTS.items()):
        monkeypatch.setitem(EXPERIMENTS, name, replace(experiment, draw=lambda _: {}))


def compute_here(experiments: list[Experiment], progress: module.Progress) -> Iterator[object]:
    """One experiment after the other in this process; other processes are for the slow tests."""
    for experiment in experiments:
        yield experiment, module._run(experiment.name, experiment.settings, progress)


@pytest.fixture(scope="module")
def whole_paper(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every experiment at its full size, which takes minutes; ``said`` is what was printed."""
    out = tmp_path_factory.mktemp("paper") / "new" / "folder"
    main = "from fedsplit.commands.app import main; main()"
    command = [sys.executable, "-c", main, "reproduce", "--out", str(out)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    (out.parent / "said").write_text(done.stdout)
    return out


@pytest.mark.slow
def test_everything_is_written_and_a_second_run_computes_nothing(
    whole_paper: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = whole_paper
    assert re.search(r"fig1 +[\d.]+ s", (out.parent / "said").read_text())
    for figure in FIGURES:
        assert (out / f"{figure}.png").read_bytes().startswith(b"\x89PNG")
        assert (out / f"{figure}.svg").read_text().startswith("<?xml")
    claims = json.loads((out / "claims.json").read_text())
    assert len(claims) >= 20
    assert all({"id", "claim", "paper", "measured", "holds"} <= set(claim) for claim in claims)
    assert len({claim["id"] for claim in claims}) == len(claims)
    page = (out / "index.html").read_text()
    assert page.count("<img") == len(FIGURES)
    assert not re.search(r'(src|href)="(?!data:|#)', page)  # nothing from elsewhere
    before = {path: path.stat().st_mtime_ns for path in (out / "data").glob("*/*")}
    assert run(["reproduce", "--out", str(out)]) == 0
    assert capsys.readouterr().out.count("unchanged") == 6
    assert {path: path.stat().st_mtime_ns for path in (out / "data").glob("*/*")} == before
    assert not [path for path in out.rglob("*") if path.name.startswith(".")]


def test_the_same_seed_gives_the_same_bytes(tmp_path: Path) -> None:
    first, again = tmp_path / "first", tmp_path / "again"
    for folder in (first, again):
        reproduce(module.select(["fig1", "fig2b"]), folder, "same")
    names = [path.relative_to(first) for path in first.rglob("*") if path.is_file()]
    assert len(names) > 10
    for name in names:
        if name.name not in ("record.json", "index.html"):  # which have the time that it took
            assert (again / name).read_bytes() == (first / name).read_bytes(), name


ABOUT_SIZE = {
    *("fig4a-geometric", "fig4a-contraction"),
    *("fig4b-fedsplit-rounds", "fig4b-fedgd-rounds", "fig4b-fewer"),
}
"""Claims about numbers of rounds at the paper's sizes, or that rounding hides in small."""


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_what_the_paper_says_is_true_in_small(name: str) -> None:
    experiment = EXPERIMENTS[name]
    shares: list[float] = []
    measured = experiment.compute(experiment.settings, lambda share, gap: shares.append(share))
    claims = {claim.id: claim for claim in experiment.claims(measured)}
    assert len(claims) >= 5
    failed = {key for key, claim in claims.items() if not claim.holds}
    assert failed <= ABOUT_SIZE
    assert shares == sorted(shares)
    assert 0.5 < shares[-1] <= 1.0 + 1e-12


def test_a_comparison_says_how_each_run_ended() -> None:
    p = fs.ensembles.isotropic(m=4, d=3, n=30)
    s = 1 / float(p.clients.ask(Curvature()).rows[:, 1].max())
    methods: list[tuple[str, Method[Any]]] = [
        ("reached", fs.FedGD(s)),
        ("floor", fs.FedProx(s)),
        ("falling", fs.FedGD(0.01 * s)),
        ("diverged", fs.FedGD(100 * s)),
    ]
    assert [(each.label, each.outcome) for each in compare(p, methods, 200)] == [
        (label, label) for label, _ in methods
    ]
    # on its way: with too few rounds, and with steps so short that x seems to stand still
    [short] = compare(p, methods[:1], 8)
    assert short.gaps[-1] < 1e-3
    assert short.outcome == "falling"
    [crawling] = compare(p, [("fedgd", fs.FedGD(5e-5 * s))], 1600)
    assert crawling.outcome == "falling"
    # f(x) = ½(x - 1)² with the step 2: x goes from 0 to 2 and back, and the gap stays the same
    swinging = fs.Problem(fs.LeastSquares(), [(np.eye(1), np.ones(1))])
    [swung] = compare(swinging, [("fedgd", fs.FedGD(2.0))], 20)
    assert swung.outcome == "falling"
    assert swung.rounds_to(0.5) == 0
    assert swung.rounds_to(0.1) is None


def test_runs_on_a_solved_problem_end_at_a_gap_and_report_their_share() -> None:
    solved = SolvedProblem(fs.ensembles.spiked(3, 5, 12, kappa=100.0))
    shares: list[float] = []
    watch = portion(lambda share, gap: shares.append(share), 0.5, 0.25)
    methods: dict[str, Method[Any]] = {"slow": fs.FedGD(0.01), "fast": fs.FedSplit(0.1)}
    curves = solved.curves(methods, 400, watch, until=1e-3)
    for name, table in curves.items():
        *before, last = table["gap"]
        assert last <= 1e-3 < min(before), name
        np.testing.assert_array_equal(table["round"], np.arange(len(table["gap"])))
    first = len(curves["slow"]["gap"]) - 1
    np.testing.assert_allclose(shares[:first], 0.5 + 0.125 * np.arange(1, first + 1) / 400)
    np.testing.assert_allclose(shares[first], 0.625 + 0.125 / 400)


def test_the_contraction_of_a_run_is_that_of_its_slowest_round() -> None:
    solved = SolvedProblem(fs.ensembles.spiked(3, 5, 12, kappa=100.0))
    target = fs.theory.fedsplit_fixed_point(solved.clients, solved.x, 0.02)
    distances = [np.linalg.norm(target)]

    def look(row: object, state: Any) -> None:
        distances.append(np.linalg.norm(state.z - target))

    fs.solve(solved.problem, fs.FedSplit(0.02), rounds=4, tol=0, callbacks=[look])
    factors = np.divide(distances[1:], distances[:-1])
    assert solved.contraction(0.02, 4) == pytest.approx(factors.max())
    assert factors.min() < 0.99 * factors.max()


def test_curves_of_gaps_by_hand() -> None:
    gaps = 3.0 * 0.5 ** np.arange(41)
    assert rounds_to(gaps, 3.0) == 0.0
    assert rounds_to(gaps, 0.75) == 2.0
    assert np.isnan(rounds_to(gaps, 0.0))
    assert floor(np.array([9.0, 9.0, 9.0, 9.0, 9.0, 9.0, 9.0, 5.0, 1.0, 3.0])) == 2.0
    factor, explained = linear_fit(gaps, 1e-6)
    assert factor == pytest.approx(0.5, rel=1e-12)
    assert explained == pytest.approx(1.0, rel=1e-12)
    # what comes below the limit, and the first sixth before, are not of the line
    bent = np.concatenate([[1e3], gaps[:12], np.full(5, 1e-9)])
    assert linear_fit(bent, 1e-6)[0] == pytest.approx(0.5, rel=1e-12)


@pytest.mark.usefixtures("undrawn")
def test_changed_settings_missing_data_and_force_are_computed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def computed(force: bool = False) -> set[str]:
        return set(reproduce(module.select(["fig1", "fig2b"]), tmp_path, "", force))

    assert computed() == {"fig1", "fig2b"}
    assert computed() == set()
    (tmp_path / "data" / "fig2b" / "record.json").write_text("{")
    assert computed() == {"fig2b"}
    changed = replace(
        EXPERIMENTS["fig1"], settings=dict(EXPERIMENTS["fig1"].settings) | {"seed": 5}
    )
    monkeypatch.setitem(EXPERIMENTS, "fig1", changed)
    assert computed() == {"fig1"}
    assert computed(force=True) == {"fig1", "fig2b"}


@pytest.mark.usefixtures("undrawn")
def test_what_is_finished_stays_when_a_run_is_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(settings: object, watch: object) -> Measurements:
        raise KeyboardInterrupt

    whole = EXPERIMENTS["fig2b"]
    monkeypatch.setitem(EXPERIMENTS, "fig2b", replace(whole, compute=interrupted))
    assert run(["reproduce", "fig1", "fig2b", "--out", str(tmp_path)]) == 130
    assert load(tmp_path / "data" / "fig1") is not None
    monkeypatch.setitem(EXPERIMENTS, "fig2b", whole)
    assert set(reproduce(module.select(["fig1", "fig2b"]), tmp_path, "")) == {"fig2b"}


def test_the_report_is_made_from_saved_data_alone_with_the_pictures_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reproduce(module.select(["fig1"]), tmp_path, "fedsplit reproduce fig1")
    page, claims = (tmp_path / "index.html").read_text(), (tmp_path / "claims.json").read_bytes()
    for path in tmp_path.glob("*.*"):
        path.unlink()

    def never(settings: object, watch: object) -> Measurements:
        raise AssertionError("the report computes")

    monkeypatch.setitem(EXPERIMENTS, "fig1", replace(EXPERIMENTS["fig1"], compute=never))
    assert run(["report", str(tmp_path)]) == 0
    assert (tmp_path / "index.html").read_text() == page
    assert (tmp_path / "claims.json").read_bytes() == claims
    assert "fedsplit reproduce fig1" in page
    found = re.findall(r'src="data:image/svg\+xml;base64,([^"]+)"', page)
    assert [base64.b64decode(svg) for svg in found] == [
        (tmp_path / f"{name}.svg").read_bytes() for name in ("fig1", "fig1-ours")
    ]


def test_bad_input_gives_one_line_and_status_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    for arguments, message in (
        (
            ["reproduce", "fig9", "--out", str(tmp_path)],
            "figure 'fig9' is not known: use one of fig1",
        ),
        (["reproduce"], "--out"),
        (["reproduce", "fig1", "--out", str(tmp_path / "file")], "is a file, not a folder"),
        (
            ["reproduce", "fig1", "--out", str(tmp_path / "file" / "below")],
            "is a file, not a folder",
        ),
        (["report", str(tmp_path)], "has no saved experiment"),
        (["report", str(tmp_path / "missing")], "has no saved experiment"),
    ):
        assert run(arguments) == 2
        error = capsys.readouterr().err
        assert message in error
        assert error.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_data_of_another_version_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Measurements({}, {}, {}, key="old").save(tmp_path / "data" / "fig1")
    assert run(["report", str(tmp_path)]) == 2
    assert "made by another version" in capsys.readouterr().err
    assert run(["reproduce", "fig1", "--out", str(tmp_path)]) == 0


def test_a_full_disk_leaves_no_half_written_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = Path.write_text

    def full(path: Path, *args: object, **kwargs: object) -> int:
        write(path, "half")
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr(Path, "write_text", full)
    assert run(["reproduce", "fig1", "--out", str(tmp_path)]) == 2
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_saved_measurements_are_read_back_to_the_bit(tmp_path: Path) -> None:
    column = np.random.default_rng(0).standard_normal(50) ** 9
    measured = Measurements({"m": 1}, {"curve": {"gap": column}}, {"s": 0.1}, 2.0, "key")
    measured.save(tmp_path / "x")
    loaded = load(tmp_path / "x")
    assert loaded is not None
    np.testing.assert_array_equal(loaded.gap("curve"), column)
    assert loaded.key == "key"


@pytest.mark.slow
def test_the_paper_at_full_size_shows_the_known_numbers(whole_paper: Path) -> None:
    claims = {claim["id"]: claim for claim in json.loads((whole_paper / "claims.json").read_text())}
    failed = [name for name, claim in claims.items() if not claim["holds"]]
    assert failed == ["fig3-literal-theorem-step"]
    assert claims["fig3-literal-theorem-step"]["reason"]
    expected = [1, 6, 10, 19, 34, 64, 116, 218, 410]
    for measured, known in zip(claims["fig4b-fedsplit-rounds"]["measured"], expected, strict=True):
        assert abs(measured - known) <= max(2, 0.1 * known)
    assert 32_000 <= claims["fig4b-fedgd-rounds"]["measured"][-1] <= 35_000
    e10, e100, prox = claims["fig1-floors"]["measured"]
    assert 1.5 < e10 < 3.5
    assert 2.0 < e100 < 4.0
    assert 0.15 < prox < 0.3
    one, five, ten = claims["fig2a-floors"]["measured"]
    assert 5 < one < 20
    assert 3e-5 < five < 4e-4
    assert 1e-10 < ten < 2e-9
    assert claims["fig2b-slowdown"]["measured"] == [39, 12]


@pytest.mark.slow
def test_ctrl_c_leaves_what_is_finished(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-c",
        "from fedsplit.commands.app import main; main()",
        "reproduce",
        "fig1",
        "fig3",
    ]
    with subprocess.Popen(
        [*command, "--out", str(tmp_path)], stderr=subprocess.PIPE, start_new_session=True
    ) as child:
        for _ in range(600):
            if (tmp_path / "data" / "fig1").exists():
                break
            time.sleep(0.1)
        child.send_signal(signal.SIGINT)
        assert child.stderr is not None
        assert b"Traceback" not in child.stderr.read()
    assert child.returncode == 130
    assert load(tmp_path / "data" / "fig1") is not None
    assert not (tmp_path / "data" / "fig3").exists()


@pytest.mark.browser
def test_the_page_opens_in_chromium_without_a_network(whole_paper: Path) -> None:
    from playwright.sync_api import sync_playwright

    requested: list[str] = []
    errors: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path="/usr/bin/chromium", args=["--no-sandbox", "--disable-gpu"]
        )
        page = browser.new_page(viewport={"width": 390, "height": 800})
        page.on("request", lambda request: requested.append(request.url))
        page.on(
            "console",
            lambda message: errors.append(message.text) if message.type == "error" else None,
        )
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto((whole_paper / "index.html").as_uri())
        drawn = page.eval_on_selector_all(
            "img", "images => images.map(i => i.complete && i.naturalWidth > 100)"
        )
        overflow = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
        rows = page.locator("tbody tr").count()
        browser.close()
    assert len(drawn) == len(FIGURES)
    assert all(drawn)
    assert [url for url in requested if not url.startswith(("file:", "data:"))] == []
    assert errors == []
    assert overflow <= 0  # nothing to scroll sideways on a phone
    assert rows == len(json.loads((whole_paper / "claims.json").read_text()))
