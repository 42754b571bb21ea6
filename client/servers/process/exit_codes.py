"""Exit codes of the commands, their meanings, and the faults that end a command with an exit code.

Fault                     an error that a person can mend: shown as one sentence, never with a stack trace
├── NotReady              the node's own    node/lifecycle/launch.py
├── BadRecord             USAGE             node/commands/records_given.py
├── NoAnswer              TIMED_OUT         here
├── NotInstalled          USAGE             frontend/config/installed.py
├── ConfigError           CONFIG            client/servers/config/spellings.py
├── ModelFault            MODEL             here
├── RedisUnavailable      REDIS             node/job/redis_errors.py
├── RedisIsCluster        REDIS             frontend/server/redis_kind.py
├── NotStarted            NOT_RUNNING       here
└── AlreadyRunning        ALREADY_RUNNING   node/job/directory.py
"""

import signal
from enum import IntEnum

INTERRUPTED = 128 + signal.SIGINT
"""Exit code that shells report for Ctrl-C."""


class ExitCode(IntEnum):
    """Exit code of a command, with the same meaning for every command."""

    OK = 0
    FAILED = 1
    USAGE = 2  # click's own
    NOT_RUNNING = 3
    CONFIG = 4
    MODEL = 5
    REDIS = 6
    ALREADY_RUNNING = 7
    TIMED_OUT = 8


MEANINGS: dict[ExitCode, str] = {
    ExitCode.OK: "done; status: the job is ready",
    ExitCode.FAILED: "failed for another reason; status: running, but not ready",
    ExitCode.USAGE: "wrong arguments, a wrong record, or a required package or program is not installed",
    ExitCode.NOT_RUNNING: "the job is not running",
    ExitCode.CONFIG: "the configuration is wrong",
    ExitCode.MODEL: "the model cannot be loaded",
    ExitCode.REDIS: "Redis cannot be reached, started or used",
    ExitCode.ALREADY_RUNNING: "a node of this job already runs on this machine",
    ExitCode.TIMED_OUT: "no answer came in time",
}


class Fault(Exception):
    """Error that a person can mend. The message is one sentence that says how."""

    exit_code: ExitCode = ExitCode.FAILED


class NotStarted(Fault):
    """No job of the given name was ever started on the machine, or no node of the job serves."""

    exit_code = ExitCode.NOT_RUNNING


class NoAnswer(Fault):
    """No answer to a record came in time."""

    exit_code = ExitCode.TIMED_OUT


class ModelFault(Fault):
    """The model is missing, or cannot be loaded."""

    exit_code = ExitCode.MODEL
