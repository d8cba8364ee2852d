"""The torture kit: what a store has to survive, for lamina's own stores and for anyone's.

    @pytest.mark.parametrize("case", tests.torture.suite(open_my_store), ids=str)
    def test_my_store(case):
        case()

`open_my_store(folder)` is as for `lamina.testing.store`: an async context manager of the store that lives in
this folder. Processes are forked, so it works where `os.fork` does. `trials` gives the outcomes themselves;
`notes/torture.md` says what each trial does and what it cannot see.
"""

from __future__ import annotations

from functools import partial

from lamina.testing import Conformance
from tests.torture.outcome import Outcome
from tests.torture.places import Place, place_at
from tests.torture.telling import OpenStore
from tests.torture.trials import LONG, SHORT, Effort, Trial, trials

__all__ = ["LONG", "SHORT", "Effort", "Outcome", "Place", "Trial", "place_at", "suite", "trials"]


def suite(
    open_store: OpenStore,
    *,
    name: str = "",
    effort: Effort = SHORT,
    local: bool = True,
    shimmed: OpenStore | None = None,
) -> list[Conformance]:
    """The trials of one store as cases for a test runner.

    `local`: it keeps everything in the folder. `shimmed` opens it so that every change goes through functions
    of `os`, or through apsw: only then can single changes be made to fail.
    """
    place = Place(name=name, open=open_store, local=local, shimmed=shimmed)
    before = f"{name}: " if name else ""
    return [Conformance(f"{before}{trial.name}", partial(_held, trial)) for trial in trials(place, effort)]


def _held(trial: Trial) -> None:
    outcome = trial.run()
    assert outcome.held, f"{len(outcome.violations)} of {outcome.tries}: {'; '.join(outcome.violations[:5])}"
