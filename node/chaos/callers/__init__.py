"""Callers of a run: programs that use the queues as programs of strangers do, and compare every answer with the model's own.

| caller | habit |
|---|---|
| `threads` | several threads share the queues, and one of them closes the queues beside the calls of the others |
| `forks` | queues that have been used are used in two children of a fork, beside the parent |
| `pauses` | pauses in a loop over results, or in the source of the requests, for longer than the reply stream lives |
| `breaks` | leaves loops over results early, and goes on with the same queues |
| `interrupts` | a signal handler raises at random instants of every call |
| `cancels` | tasks of asyncio are cancelled at random instants |
| `harvest` | after the load: takes all results with loops that are left early and interrupted |

A caller is a process (`program.py`), started and ended by `crew.py`. A round of a caller (`caller.py`) makes calls of `calls.py`,
or of `async_calls.py`, which check each answer. `tally.py` is the report of a caller.
"""
