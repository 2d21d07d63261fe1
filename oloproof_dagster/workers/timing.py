"""How long the pool of worker processes waits for what, and how often it tries again.

None of these bounds a call: that is `timeout_s`, which is the user's. All of them bound what is done around calls, and
on a busy machine they are waited out only where a process hangs.
"""

TICK_SECONDS = 0.2
"""How often the pool looks at its lanes by itself. What happens in a process wakes it at once; this is for what no
event tells of, such as a call that is late."""

LATE_SECONDS = 0.6
"""How long after the time limit pebble is trusted to end a call, before the pool does. Pebble goes by the clock on the
wall, which may be set back. With `STOP_SECONDS` it leaves a call's end within a second of its limit."""

CLOCKS_DIFFER_SECONDS = 0.25
"""How much less than the time limit a call that pebble ended may have taken. Where it took still less, the clock on the
wall was set forward, and the call is made again."""

STOP_SECONDS = 0.2
"""How long a worker has between SIGTERM and SIGKILL at its time limit: most die of the first, and code in C of none
but the second."""

DEATH_SECONDS = 5.0
"""How long processes that were sent SIGKILL are waited for. They are gone in milliseconds, unless the machine is very
busy; one that hangs in a device would be waited for without end."""

LOOK_SECONDS = 0.002
"""How long it is from one look at whether they are gone to the next: the next case waits for it."""

FAREWELL_SECONDS = 5.0
"""How long workers have at the end of a run to close their sandboxes and to do what was left to be done at exit."""

LET_GO_SECONDS = 2.0
"""How long threads are waited for whose process is dead. They hold nothing that is needed again, but for a pipe that
pebble closes under them."""

MOST_LOADS = 3
"""How many processes of a lane may die one after the other before they have loaded the system: one or two may be bad
luck (a machine short of memory), three are the system's own doing."""

MOST_STARTS = 10
"""How many processes may end before they begin a call that they were handed. More than loads, because it is never the
call's own doing."""
