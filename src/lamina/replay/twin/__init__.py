"""The twin run: how often the model chooses the same tool call after lamina's request as after the client's.

    twin = Twin(TwinSettings(share=0.05, spend=5.0))
    if twin.wants("conversation 7, call 12", cost=0.04):        # before the second call is sent
        twin.add("conversation 7, call 12", pair, cost=0.038)   # with both answers
    print(twin.report())                                        # same call in 97.1 ± 2.4 % of 1,000 calls …

A share of calls is sent twice: as lamina fitted it, whose answer the client gets, and as the client sent it
(or as another policy would). `chosen.py` says what an answer chose, `sequential.py` is the test, and `run.py`
chooses the calls, keeps the spending limit and writes the report. Nothing here sends anything or waits: who
calls this does; in a gateway that is `lamina.gateway.twins`. A verdict may be read after every call without
making a false one more likely.
"""

from __future__ import annotations

from lamina.replay.twin.chosen import (
    ChosenCalls,
    TwinPair,
    Verdict,
    compare_choices,
    list_chosen,
    read_choice,
)
from lamina.replay.twin.run import Twin, TwinReport, TwinSettings, TwinTally
from lamina.replay.twin.sequential import Decision, SequentialTest, bound_share, decide

__all__ = [
    "ChosenCalls",
    "Decision",
    "SequentialTest",
    "Twin",
    "TwinPair",
    "TwinReport",
    "TwinSettings",
    "TwinTally",
    "Verdict",
    "bound_share",
    "compare_choices",
    "decide",
    "list_chosen",
    "read_choice",
]
