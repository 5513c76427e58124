"""What leaves a client and what does not, in words for its owner."""

from __future__ import annotations

from pathlib import Path
from textwrap import fill

from fedsplit.data.tables import Source
from fedsplit.regression.client.guards.rules import NO_PROMISE, Rules
from fedsplit.version import __version__

TERMS = """\
client {name}: {rows:,} rows and {columns} columns in {where}

What leaves this machine, to the server alone:
  once       for {named}: whether all, most, some or none of
             their values are numbers, dates, booleans or text
  once       for the columns of the model: counts of rows and missing values, the levels of
             categories with their counts
  once       for poly, scale, bs, ns and cut in the formula: sums of powers of their columns,
             and counts of rows in wide intervals, none of them below {smallest}
  once       means and cross products of the coded columns, for gaussian also with the target;
             once or twice more if columns are nearly dependent, or some rows say nothing about
             the coefficients
  seldom     whether a direction of the coefficients suits every row: yes or no (not if strict)
  per round  {rounds}, and a few numbers
  per proof  the gradient and the information matrix of this client, and a few numbers
  at the end the log-likelihood, the loss without covariates, and for a classifier counts of
             rows by predicted probability
Rows never leave, as long as the server asks only what fedsplit asks. In a study with secure
sums all of this is masked, and the server learns its sum over all clients alone. In a study with
noise nothing of this leaves, but only the sums with noise that you read before you approve it.
{guards}
{promise}
{limit}Every question and every answer is logged in {log}
This machine runs its own fedsplit {version}; it takes no code from the server.
"""

NAMED = {
    True: "the columns of a study that you have approved, and no others",
    False: "all columns, by their names",
}
"""Which columns are described, by whether there are studies."""

ROUNDS = {
    False: "vectors and an information matrix, or a vector, as long as the coefficients",
    True: "a vector as long as the coefficients",
}
"""What a client tells in a round, by whether it is vectors alone."""


def terms(
    name: str,
    data: str,
    source: Source,
    rules: Rules,
    vectors: bool,
    studies: bool,
    most: int | None,
    log: Path,
) -> str:
    """The terms under which a client answers; reads the file.

    Parameters
    ----------
    name : str
        Of the client.
    data : str
        Its file, as the owner named it.
    source : Source
        Its rows.
    rules : Rules
    vectors : bool
        Whether matrices are sent for proofs only.
    studies : bool
        Whether only what belongs to an approved study is answered.
    most : int or None
        The most questions that are answered.
    log : Path
        Where they are written down.
    """
    columns = source.names()
    limit = ""
    if most is not None:
        limit = f"At most {most:,} questions are answered, over all models.\n"
    consequence = "is reported to the server as a warning"
    if rules.refuse:
        consequence = "is refused"
    return TERMS.format(
        name=name,
        named=NAMED[studies],
        rows=len(source.read(dict.fromkeys(columns[:1], "text"))),
        columns=len(columns),
        where=data,
        smallest=rules.smallest,
        rounds=ROUNDS[vectors],
        guards=f"An answer from fewer than {rules.rows} rows, a level of fewer than "
        f"{rules.smallest}, or\nmore parameters than {rules.share} of the rows {consequence}.",
        promise=fill(NO_PROMISE, 95),
        limit=limit,
        log=log,
        version=__version__,
    )
