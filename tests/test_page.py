"""The page of a fit: complete, reproducible, safe whatever the names, readable in a browser."""

import base64
import dataclasses
import html
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
from statsmodels.stats.proportion import proportion_confint

import fedsplit as fs
from fedsplit.data.types import Type
from fedsplit.loop.trace import Trace
from fedsplit.regression.client.design import Calibration
from fedsplit.regression.families import FAMILIES
from fedsplit.regression.result import page as figures
from fedsplit.regression.result.io import load
from fedsplit.regression.result.model import Model
from fedsplit.regression.result.page import pooled_html as html_of
from fedsplit.regression.result.table import number
from fedsplit.regression.server.clustered import ClusteredCovariance
from fedsplit.regression.server.report import FitCertificate

NASTY = "<script>alert(1)</script>"
LONG = "w" * 300
ODD = [NASTY, f'"quoted" & {LONG}', "病院 🏥 $x^2$ \x0b http://example.org"]


def frames(family: str, clients: int = 4, n: int = 60) -> dict[str, pd.DataFrame]:
    rng = np.random.default_rng(3)
    found = {}
    for j in range(clients):
        age, income = rng.uniform(20, 80, n), rng.lognormal(10, 0.5, n)
        eta = 0.02 * (age - 50) + 2e-5 * (income - 25_000) + 0.3 * j
        y = {
            "gaussian": eta + rng.standard_normal(n),
            "huber": eta + rng.standard_t(2, n),
            "logistic": (rng.logistic(size=n) < eta).astype(int),
            "poisson": rng.poisson(np.exp(eta)),
            "gamma": np.exp(eta) * rng.gamma(3.0, 1 / 3, n),
            "multinomial": np.array(["a", "b", "c"])[rng.integers(0, 3, n)],
        }[family]
        found[f"site {j}"] = pd.DataFrame(
            {"y": y, "age": age, "income": income, "sex": rng.choice(["f", "m"], n)}
        )
    return found


@cache
def fitted(family: str, ridge: float = 0.0) -> Model:
    return fs.fit(frames(family), "y ~ age + income + sex", family=family, ridge=ridge)


@cache
def page(family: str) -> str:
    """The page of a model; its figures take most of the time of these tests."""
    return html_of(fitted(family))


def written(model: Model, tmp_path: Path) -> str:
    model.report(tmp_path / "page.html")
    return (tmp_path / "page.html").read_text(encoding="utf-8")


def pictures(text: str) -> list[bytes]:
    return [
        base64.b64decode(found)
        for found in re.findall(r'src="data:image/svg\+xml;base64,([^"]+)"', text)
    ]


def visible(text: str) -> str:
    """What a browser shows; cells of a table are two spaces apart."""
    without_style = re.sub(r"<style>.*?</style>", "", text, flags=re.DOTALL)
    return html.unescape(re.sub(r"<[^>]+>", " ", without_style)).replace("\n", " ")


def odd() -> Model:
    rng = np.random.default_rng(0)
    data = {}
    for name in ODD:
        x = rng.standard_normal((40, 3))
        columns = ["<b>bold</b>", "🏥 $a$", LONG]
        data[name] = pd.DataFrame(x, columns=columns).assign(
            y=x @ [1.0, 2.0, 0.0] + rng.standard_normal(40)
        )
    return fs.fit(data, target="y")


def changed(model: Model, **fields: Any) -> Model:
    """Return the model with other fields, each of the part that has it."""
    for part in ("estimates", "fit", "run"):
        value = getattr(model, part)
        own = {name: fields.pop(name) for name in list(fields) if hasattr(value, name)}
        model = dataclasses.replace(model, **{part: dataclasses.replace(value, **own)})
    return dataclasses.replace(model, **fields)


@cache
def odd_page() -> str:
    return html_of(odd())


def crowded(clients: int = 200, terms: int = 60) -> Model:
    """A model of so many clients and terms, of which no row was ever seen."""
    model, rng = fitted("gaussian"), np.random.default_rng(1)
    names = ["Intercept", *(f"term {i}" for i in range(1, terms))]
    coef = rng.standard_normal(terms) * 10.0 ** rng.integers(-6, 6, terms)
    return changed(
        model,
        names=names,
        values=coef,
        covariance=np.diag(np.square(0.4 * coef)),
        robust=ClusteredCovariance(np.diag(np.square(0.7 * coef)), np.full(terms, 5.0)),
        clients=pd.DataFrame(
            {
                "n": rng.integers(1, 1000, clients),
                "missing": 0,
                "leverage": rng.dirichlet(np.ones(clients)),
                "score": rng.exponential(size=clients),
                "shift": rng.standard_normal(clients),
                "coefficient": rng.choice(names, clients),
            },
            index=pd.Index([f"client {j}" for j in range(clients)], name="client"),
        ),
    )


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_has_a_whole_page(family: str) -> None:
    model, text = fitted(family), page(family)
    seen = visible(text)
    for name, value in model.params.items():
        assert f"{name}  {number(value)}" in seen
    assert f"{family.capitalize()} regression of y" in seen
    assert "240 rows of 4 clients" in seen
    assert str(model.certificate) in seen
    assert 'class="box good"' in text
    for client in model.clients.index:
        assert str(client) in seen
    for setting, value in dataclasses.asdict(model.settings).items():
        assert f"{setting} = " in seen, value
    headings = re.findall(r"<h(\d)>([^<]+)", text)
    assert [level for level, _ in headings] == ["1"] + ["2"] * (len(headings) - 1)
    assert ("2", "Calibration") in headings or family != "logistic"
    assert len(pictures(text)) == (4 if family == "logistic" else 3)
    assert text.count("<img") == text.count(' alt="') == len(pictures(text))


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({}, "In each round: vectors as long as the table of coefficients, its 2 × 2 information"),
        (
            {"method": "quasi-newton"},
            "For each proof, of which there was 1: its gradient, its 2 × 2",
        ),
        ({"firth": True}, "at every new estimate its 2 × 2 information matrix"),
    ],
)
def test_the_page_says_when_matrices_left_a_client(
    settings: dict[str, Any], told: str, tmp_path: Path
) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"y": rng.integers(0, 2, 90), "x": rng.standard_normal(90)})
    frame["site"] = frame.index % 3
    model = fs.fit(frame, "y ~ x", family="logistic", group="site", **settings)
    assert told in " ".join(visible(written(model, tmp_path)).split())


def test_the_table_shows_what_the_model_has() -> None:
    model, seen = fitted("poisson"), visible(page("poisson"))
    assert model.bse is not None
    assert model.pvalues is not None
    interval, robust = model.conf_int(), np.sqrt(np.diag(model.cov_params(robust=True)))
    for i, name in enumerate(model.estimates.names):
        for value in (model.bse.iloc[i], robust[i]):
            assert number(value) in seen
        assert f"{number(interval.lower.iloc[i])} to {number(interval.upper.iloc[i])}" in seen
        assert model.pvalues.iloc[i] >= 0.001 or re.search(rf"{name} .*< 0\.001", seen)
    assert f"{model.deviance:,.6g}" in seen
    assert f"{model.aic:,.6g}" in seen


def test_the_same_model_gives_the_same_bytes_fitted_again_or_loaded(tmp_path: Path) -> None:
    first = page("logistic")
    again = fs.fit(frames("logistic"), "y ~ age + income + sex", family="logistic")
    assert written(again, tmp_path) == first
    fitted("logistic").save(tmp_path / "model")
    assert written(load(tmp_path / "model"), tmp_path) == first


@pytest.mark.parametrize("make", [lambda: page("logistic"), odd_page], ids=["plain", "odd"])
def test_nothing_is_loaded_from_anywhere(make: Callable[[], str]) -> None:
    text = make()
    for part in (text, *(svg.decode() for svg in pictures(text))):
        assert not re.search(r'\b(src|href|data|action)="(?!data:|#)', part)
        assert not re.search(r"url\((?!#)|@import|<script|<iframe|<object|<foreignObject", part)
    assert "http" not in re.sub(r"http://example\.org", "", text)


def test_names_are_text_whatever_they_are() -> None:
    text = odd_page()
    assert NASTY not in text
    assert "<b>bold" not in text
    for name in (*ODD, "<b>bold</b>", "🏥 $a$", LONG):
        assert name in visible(text)
    for svg in pictures(text):
        ElementTree.fromstring(svg)  # well-formed, also with a control character in a name
    assert "$a$" in pictures(text)[0].decode()  # and no mathematics


def test_a_client_named_after_a_file_that_is_no_text_has_a_page(tmp_path: Path) -> None:
    model = fitted("poisson")
    names = ["caf\udce9", *model.clients.index[1:]]
    renamed = model.clients.set_axis(pd.Index(names, dtype=object, name="client"))
    assert "caf?" in written(changed(model, clients=renamed), tmp_path)


def test_a_penalty_leaves_no_standard_errors_and_says_why(tmp_path: Path) -> None:
    text = written(fitted("poisson", ridge=10.0), tmp_path)
    assert "a standard error would mislead" in text
    assert "standard error</th>" not in text
    assert "95 % interval" not in visible(text)
    assert len(pictures(text)) == 3


def test_huber_has_the_robust_intervals() -> None:
    model, seen = fitted("huber"), visible(page("huber"))
    low, high = model.conf_int(robust=True).iloc[1]
    assert f"{number(low)} to {number(high)}" in seen
    assert "no likelihood" in seen
    assert "The intervals are robust" in seen


def text_of(page: str) -> str:
    """The words of a page, without its marks."""
    return html.unescape(" ".join(re.sub(r"<[^>]*>", "", page).split()))


@pytest.mark.parametrize("family", FAMILIES)
def test_a_sentence_ends_before_a_space(family: str) -> None:
    text = text_of(page(family).partition("<header>")[2].partition("<h2>Coefficients")[0])
    assert "never pooled. Reference levels: sex f." in text or "never pooled. Delta " in text
    assert not re.search(r"[a-z][.:;][A-Z]", text)


def test_the_page_says_which_sums_functions_and_delta_took() -> None:
    data = frames("huber")
    text = text_of(html_of(fs.fit(data, "y ~ bs(age, df=4) + scale(income)", family="huber")))
    assert "For bs(age, df=4), which depends on the rows of all clients: moments of its" in text
    assert "column and a coarse histogram. For scale(income), which" in text
    assert "For δ: histograms of the sizes of its residuals." in text
    plain = text_of(page("gaussian"))
    assert "depends on the rows of all clients" not in plain
    assert "histogram" not in plain


def test_a_page_without_intervals_speaks_of_none(tmp_path: Path) -> None:
    columns: dict[str, Type] = {"y": "number", "age": "number"}
    texts = []
    for epsilon in (0.05, 1e4):
        noise = fs.Privacy(epsilon=epsilon, delta=1e-5, clip=100.0, rounds=2, seed=0, score=10.0)
        data = {name: frame[["y", "age"]] for name, frame in frames("gaussian").items()}
        model = fs.fit(data, "y ~ age", dp=noise, types=columns)
        texts.append((model.bse is None, text_of(written(model, tmp_path)) + str(model.summary())))
    assert [without for without, _ in texts] == [True, False]
    assert "interval, " not in texts[0][1]
    assert "errors include the noise" not in texts[0][1]
    assert "Coefficients alone: the noise leaves no interval." in texts[0][1]
    assert "95 % intervals, which include the noise." in texts[1][1]
    assert "standard errors include the noise" in texts[1][1]


def test_a_fit_that_did_not_converge_says_so_first(tmp_path: Path) -> None:
    model = changed(
        fitted("poisson"),
        converged=False,
        certificate=FitCertificate(None, None, "the classes are <odd>"),
    )
    text = written(model, tmp_path)
    assert 'class="box good"' not in text
    assert text.index("Not converged") < text.index("<h2>")
    assert "nothing is proved: the classes are &lt;odd&gt;" in text


def test_warnings_are_shown_before_the_table(tmp_path: Path) -> None:
    text = written(changed(fitted("poisson"), warnings=["client <a> has 3 rows"]), tmp_path)
    assert text.index("client &lt;a&gt; has 3 rows") < text.index("<h2>")


def test_numbers_that_are_none_are_dashes(tmp_path: Path) -> None:
    model = fitted("gaussian")
    nothing = np.full_like(model.cov_params().to_numpy(), np.nan)
    broken = changed(
        model,
        covariance=nothing,
        robust=ClusteredCovariance(nothing, nothing[0]),
        llf=None,
        deviance=np.nan,
        values=np.array([np.inf, np.nan, 0.0, -1.0]),
        clients=model.clients.assign(score=None, shift=None, coefficient=""),
        trace=Trace(None, model.trace.rows),  # type: ignore[arg-type]  # as a loaded one whose start was not finite
        proofs=[(1, None), (2, float("nan"))],
    )
    seen = visible(written(broken, tmp_path))
    assert "nan" not in seen
    assert "None" not in seen
    assert "deviance  –" in seen
    assert "AIC" not in seen
    assert "nothing to compare" in seen


def test_one_client_and_one_coefficient_are_enough(tmp_path: Path) -> None:
    model = fs.fit(frames("gaussian", clients=1), "y ~ age + income")
    assert len(pictures(written(model, tmp_path))) == 2
    alone = changed(
        model,
        plan=dataclasses.replace(model.plan, formula="y ~ 1"),
        names=["Intercept"],
        values=model.params.to_numpy()[:1],
        covariance=model.cov_params().to_numpy()[:1, :1],
    )
    text = written(alone, tmp_path)
    assert "1 coefficient," in visible(text)
    assert "rows of 1 client," in visible(text)
    assert "Intercept" in pictures(text)[0].decode()


def test_a_page_is_written_where_no_coefficient_has_an_estimate(tmp_path: Path) -> None:
    # the reference c is set apart by x from a and b, which only their contrast compares
    frame = pd.DataFrame({"y": list("aabbcc") * 6, "x": [0.0, 1, 0, 1, 5, 7] * 6})
    frame = frame.assign(site=np.arange(36) % 3)
    model = fs.fit(frame, "y ~ x", group="site", family="multinomial", reference={"y": "c"})
    assert not np.isfinite(model.params).any()
    model.report(tmp_path / "report.html")
    assert "Not estimable" in (tmp_path / "report.html").read_text()


def test_many_clients_and_coefficients_are_all_in_the_tables(tmp_path: Path) -> None:
    model = crowded()
    text = written(model, tmp_path)
    rows = re.findall(r'<th scope="row">([^<]+)', text)
    assert rows == [*model.estimates.names, *model.clients.index]
    coefficients, _, clients = (svg.decode() for svg in pictures(text))
    assert all(f">{name}<" in coefficients for name in model.estimates.names[1:])
    drawn = set(re.findall(r">(client \d+)<", clients))
    most = model.clients["shift"].abs().nlargest(figures.MOST_CLIENTS)
    assert drawn == set(most.index)
    assert "the first 40 of 200" in text


def test_coefficients_of_like_size_share_an_axis() -> None:
    reach = np.array([1e-6, 3.0, 2e-6, 1.0, 0.5, 900.0])
    groups = figures._alike(reach, np.arange(6) + 10)
    assert [group.tolist() for group in groups] == [[15], [11, 13, 14], [10, 12]]


def test_zero_and_unknown_coefficients_go_with_the_smallest() -> None:
    ends = np.array([[0.0, 0.0], [np.nan, np.nan], [-2.0, 1.0], [0.1, 0.3]])
    np.testing.assert_array_equal(figures._reach(ends), [0.3, 0.3, 2.0, 0.3])
    np.testing.assert_array_equal(figures._reach(np.zeros((2, 2))), [1.0, 1.0])


def test_long_names_keep_both_ends_beside_an_axis() -> None:
    assert figures.label("a" * 20 + "b" * 20, 10) == "aaaaa…bbbb"
    assert figures.label("one\ntwo\x00 $x$") == r"one two  \$x\$"


def test_intervals_of_the_calibration_are_wilsons() -> None:
    events, rows = np.array([0.0, 3.0, 50.0, 7.0]), np.array([5.0, 10.0, 60.0, 7.0])
    expected = proportion_confint(events, rows, method="wilson")
    np.testing.assert_allclose(figures.wilson(events / rows, rows), expected, atol=1e-4)


def test_a_calibration_without_a_cell_says_so(tmp_path: Path) -> None:
    empty = changed(fitted("logistic"), calibration=Calibration(*np.zeros((3, 16))))
    text = written(empty, tmp_path)
    assert len(pictures(text)) == 3
    assert "No client has 3 rows or more" in text


def test_the_folder_is_made_and_one_that_cannot_be_is_named(tmp_path: Path) -> None:
    model = fitted("poisson")
    model.report(tmp_path / "new" / "folder" / "page.html")
    assert [path.name for path in (tmp_path / "new" / "folder").iterdir()] == ["page.html"]
    (tmp_path / "file").write_text("")
    with pytest.raises(fs.InputError, match="file: is a file, not a folder"):
        model.report(tmp_path / "file" / "page.html")
    with pytest.raises(OSError, match="new"):
        model.report(tmp_path / "new")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "new"]


@pytest.mark.browser
@pytest.mark.parametrize(
    "make", [lambda: fitted("logistic"), odd, crowded], ids=["plain", "odd", "crowded"]
)
def test_the_page_of_a_fit_opens_in_chromium(make: Callable[[], Model], tmp_path: Path) -> None:
    from playwright.sync_api import sync_playwright

    text = written(make(), tmp_path)
    requested: list[str] = []
    errors: list[str] = []
    overflow: list[int] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path="/usr/bin/chromium", args=["--no-sandbox", "--disable-gpu"]
        )
        tab = browser.new_page()
        tab.on("request", lambda request: requested.append(request.url))
        tab.on(
            "console",
            lambda message: errors.append(message.text) if message.type == "error" else None,
        )
        tab.on("pageerror", lambda error: errors.append(str(error)))
        tab.on("dialog", lambda dialog: errors.append(dialog.message))
        drawn: list[bool] = []
        for scheme in ("light", "dark"):
            for width, media in ((700, "print"), (400, "screen"), (1200, "screen")):
                tab.emulate_media(media=media, color_scheme=scheme)
                tab.set_viewport_size({"width": width, "height": 800})
                tab.goto((tmp_path / "page.html").as_uri())
                overflow.append(
                    tab.evaluate("document.documentElement.scrollWidth - window.innerWidth")
                )
            drawn += tab.eval_on_selector_all(
                "img", "all => all.map(i => i.complete && i.naturalWidth > 100)"
            )
        browser.close()
    assert len(drawn) == 2 * len(pictures(text))
    assert all(drawn)
    assert [url for url in requested if not url.startswith(("file:", "data:"))] == []
    assert errors == []
    assert max(overflow) <= 0
