"""How a shell command is started: the constant scripts and the places where their parts lie.

The shell opens these parts by path through its parent (`$PPID` is the keeper), so that nothing of
ours is in the job's descriptor table. What the prologue says is made by `engine.jobs.shellstate`;
here stands only where bash looks. Standard library only.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

FD_PROLOGUE: Final = 100  # read once, before the command: restores the state
FD_EXIT: Final = 101  # the exit script, the same for every call; see `open_scripts`
FD_SINK: Final = 102  # a file, empty when the shell starts: the state dump is written here
FD_CALL: Final = 103  # evaluated at the end of the prologue: sets the command's text
FD_WORD: Final = 104  # read to its end before `FD_CALL`; a shell that finds no word here leaves
FD_TELL: Final = 105  # a pipe: the shell of a session says there how its command ended
ALL_FDS: Final = (FD_PROLOGUE, FD_EXIT, FD_SINK, FD_CALL, FD_WORD, FD_TELL)
WORD: Final = b"go"
EXIT_SCRIPT: Final = Path(__file__).with_name("session_exit.bash")

# Posix mode is entered by an assignment, which no function can shadow; in it special builtins
# (`eval`, `.`, `trap`, `set`, `unset`) win over functions of their names. `$_` goes through as the
# last word, behind a comment sign, so that the command sees what `bash -c` would show it.
_START: Final = (
    f'POSIXLY_CORRECT=$_;eval "$(<"/proc/$PPID/fd/{FD_PROLOGUE}") #" "$POSIXLY_CORRECT" '
    "2>/dev/null;"
    'eval "${POSIXLY_CORRECT##[! ]*}$BASH_EXECUTION_STRING"'
)

# A redirection is expanded without xtrace, DEBUG trap or command lookup. So this one notes the
# options as they are (in the pattern of a removal that removes nothing), enters posix mode, and
# turns a trace that goes elsewhere to standard error.
_TO_SINK: Final = (
    '2>/dev/null >|"/proc/${{PPID#"$PPID${{_engine_was:=:$SHELLOPTS:/:$BASHOPTS:/'
    '${{POSIXLY_CORRECT+=$POSIXLY_CORRECT}}}}"}}/fd/$((BASH_XTRACEFD=2,POSIXLY_CORRECT={sink}))"'
)


def _dump(how: str) -> str:
    # The `&&` keeps errexit and an ERR trap away from the status that the script hands back.
    body = f'{{ \\. "/proc/$PPID/fd/{FD_EXIT}" {how} && [[ 1 ]]; }}'
    return f"{body} {_TO_SINK.format(sink=FD_SINK)}"


# The last thing but one in a prologue: a shell that is started ahead of its call waits here. What
# reads a file by `$(<...)` neither forks nor looks for a command; `builtin` is no function yet.
AWAIT_CALL: Final = (
    f'[[ $(<"/proc/$PPID/fd/{FD_WORD}") ]]||{{ builtin trap - EXIT;builtin exit 125; }}\n'
    f'builtin eval "$(<"/proc/$PPID/fd/{FD_CALL}")"'
)

# Set by the prologue of a session, before the command. `session_exit.bash` knows its two ends.
EXIT_TRAP: Final = _dump("exit")

PLAIN_SCRIPT: Final = _START
SESSION_SCRIPT: Final = _START + ";" + _dump('"$?"')


_COMMAND_LINE: Final = f"bash --norc --noprofile -c {_START}"[:100]  # as far as one is shown


def argv(*, session: bool) -> list[str]:
    """The command line of a call's shell; `session` says whether it dumps its state at the end."""
    script = SESSION_SCRIPT if session else PLAIN_SCRIPT
    return ["bash", "--norc", "--noprofile", "-c", script, "bash"]


def shown(command: str) -> str:
    """A command line as a person should see it: of a copy of a call's shell, not our script."""
    return "bash" if command.startswith(_COMMAND_LINE) else command


def open_scripts() -> None:
    """Put the exit script and the word at their descriptors, close-on-exec.

    What is forked from here has them.
    """
    script = os.open(EXIT_SCRIPT, os.O_RDONLY | os.O_CLOEXEC)
    word = os.memfd_create("word")
    try:
        os.write(word, WORD)
        os.dup2(script, FD_EXIT, inheritable=False)
        os.dup2(word, FD_WORD, inheritable=False)
    finally:
        os.close(script)
        os.close(word)
