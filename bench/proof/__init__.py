"""Does the agent still succeed? Shared benchmarks under each policy and window, without a model's opinion.

    python -m bench.proof                             every part whose data is there, and what is missing
    python -m bench.proof variables bfcl-memory       these parts
    python -m bench.proof get bfcl science-world      fetch the data of these parts into build/proof
    python -m bench.proof answers rows ...            rows for a model that answers, and its answers counted
    python -m bench.proof --quick                     a second or two, to see that it works

Read `tasks.py` first: what a task is. `parts.py` lists the benchmarks and where their data comes from, one
module each makes their tasks. `follow.py` sends a task under a policy, `recalling.py` recalls as a reader
without a model would, `rows.py` sums up and has the intervals. `answers.py` asks a model. notes/benchmarks.md
has the figures and says what they do not show.
"""
