"""The laws, as code: each takes a case and yields what breaks it.

`seal` checks on every build what the build or the ledger could have broken. `audit` checks every law as
strictly as it is written, on one request or on two in a row. The name of a function is the name of its law.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from lamina.core.entries import find_logged
from lamina.core.envelope import Envelope
from lamina.core.laws.case import BuildInputs, Case
from lamina.core.laws.content import (
    calls_and_results_pair,
    conservation,
    nothing_crosses,
    nothing_is_lost,
    once_in_full,
    what_cannot_be_recovered_goes_last,
)
from lamina.core.laws.stability import (
    append_only_within_an_epoch,
    deterministic,
    forms_never_rise,
    is_same_request,
    lowering_shrinks,
    within_the_room,
)
from lamina.core.laws.voices import (
    no_authority_is_gained,
    untouched_means_untouched,
    what_the_user_said_is_not_lost_in_silence,
)
from lamina.core.options import DEFAULT_OPTIONS, Options
from lamina.core.tokens import ESTIMATE, Counter
from lamina.errors import LawBroken

__all__ = (
    "LAWS",
    "BuildInputs",
    "Case",
    "append_only_within_an_epoch",
    "audit",
    "calls_and_results_pair",
    "conservation",
    "deterministic",
    "forms_never_rise",
    "is_same_request",
    "lowering_shrinks",
    "no_authority_is_gained",
    "nothing_crosses",
    "nothing_is_lost",
    "once_in_full",
    "untouched_means_untouched",
    "what_cannot_be_recovered_goes_last",
    "what_the_user_said_is_not_lost_in_silence",
    "within_the_room",
)


def audit(
    request: Envelope | Case,
    *,
    before: Envelope | None = None,
    counter: Counter = ESTIMATE,
    options: Options = DEFAULT_OPTIONS,
) -> None:
    """Raise LawBroken with the first law that does not hold.

    An application has an envelope, and the counter and options of its build (those of a session are its
    `terms`). The name in the error is that of the function, and of the property test for the law.
    """
    case = request
    if isinstance(case, Envelope):
        log = tuple(entry.segment for entry in find_logged(case.entries))
        case = Case(log=log, envelope=case, before=before, counter=counter, options=options)
    for name, law in LAWS.items():
        for problem in law(case):
            raise LawBroken(name, problem)


LAWS: dict[str, Callable[[Case], Iterator[str]]] = {
    law.__name__: law
    for law in (
        deterministic,
        within_the_room,
        append_only_within_an_epoch,
        forms_never_rise,
        calls_and_results_pair,
        conservation,
        nothing_is_lost,
        what_cannot_be_recovered_goes_last,
        once_in_full,
        lowering_shrinks,
        untouched_means_untouched,
        no_authority_is_gained,
        what_the_user_said_is_not_lost_in_silence,
        nothing_crosses,
    )
}
"""Every law by its name, in the order in which `audit` checks them."""
