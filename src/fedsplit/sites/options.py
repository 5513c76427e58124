"""What the owner of a client chooses."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fedsplit.data.reading import PLAIN, Reading
from fedsplit.regression.client.guards.rules import WARN, Rules
from fedsplit.sites.studies.credentials import Credentials


@dataclass(frozen=True)
class SiteOptions:
    """The options of a client.

    Attributes
    ----------
    max_rounds : int or None
        The most questions that are answered, over all models.
    strict : bool
        Refuse answers that could disclose single rows, even if the server does not ask for that.
    rules : Rules
        The owner's rules; by default those of ``strict``, or warnings only.
    vectors : bool
        Send matrices for proofs only.
    log : Path or None
        A file with one line of JSON per question; ``questions.jsonl`` in the folder where None.
    fresh : bool
        Count the questions of ``max_rounds`` from 0 again. What was answered stays recorded: the
        ledgers of the guards last as long as the folder.
    reading : Reading
        How the file is read.
    approve : str or None
        Which studies are approved without asking, as in ``Approval``. With None there are no
        studies: whatever is asked is answered, under the rules.
    credentials : Credentials or None
        With which studies are verified; None where there are no keys.
    """

    max_rounds: int | None = None
    strict: bool = False
    rules: Rules = WARN
    vectors: bool = False
    log: Path | None = None
    fresh: bool = False
    reading: Reading = PLAIN
    approve: str | None = None
    credentials: Credentials | None = None
