"""The questions of a fit beside those of its rounds, and the table of all of them.

Each one has the type of its answer and the check of what comes back. A new one is one class in a
module here and one line of ``FIT_QUESTIONS``.
"""

from __future__ import annotations

from collections.abc import Mapping

from fedsplit.regression.client.questions.along import Along, Recede
from fedsplit.regression.client.questions.fit_question import FitQuestion
from fedsplit.regression.client.questions.fitted import Fitted
from fedsplit.regression.client.questions.moments import Code, Products, Settle
from fedsplit.regression.client.questions.noisy import NoisySums
from fedsplit.regression.client.questions.residuals import ResidualSizes
from fedsplit.regression.client.questions.survey import Joint, Measure, Survey

FIT_QUESTIONS: Mapping[str, type[FitQuestion]] = {
    question.name(): question
    for question in (
        Survey,
        Measure,
        Joint,
        Code,
        Products,
        Recede,
        Settle,
        Along,
        Fitted,
        ResidualSizes,
        NoisySums,
    )
}
"""Everything that clients of a fit answer beside the questions of the rounds, by name."""
