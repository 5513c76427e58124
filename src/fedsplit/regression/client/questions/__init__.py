"""The questions of a fit beside those of its rounds, and the table of all of them.

Sums over rows are one question: a new sum is a statistic. What is no such sum is a class here, with
the type of its answer, the check of what comes back, and a statement of what it discloses.
"""

from __future__ import annotations

from collections.abc import Mapping

from fedsplit.regression.client.questions.fit_question import FitQuestion
from fedsplit.regression.client.questions.noisy import NoisySums
from fedsplit.regression.client.questions.settle import Settle
from fedsplit.regression.client.questions.sum_question import SumQuestion
from fedsplit.regression.client.questions.survey import Joint, Survey

FIT_QUESTIONS: Mapping[str, type[FitQuestion]] = {
    question.name(): question for question in (Survey, SumQuestion, Joint, Settle, NoisySums)
}
"""Everything that clients of a fit answer beside the questions of the rounds, by name."""
