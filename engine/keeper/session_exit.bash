# Writes the state of the shell to standard output (the sink), for the next call to start from.
#
#   . FILE exit     from the EXIT trap: the shell is dying, what is changed here is not missed
#   . FILE STATUS   after the command: the same, unless the command set an EXIT trap of its own,
#                   which must find everything as it was: then a subshell writes
#
# Comes here in posix mode, where special builtins win over functions of their names, with what
# SHELLOPTS, BASHOPTS and POSIXLY_CORRECT were before in _engine_was. Leading backslashes keep
# aliases away. NUL separates: no variable, function or alias can hold one.

# After an unterminated `$(` bash 5.2 corrupts its heap at the next quote that it parses, unless
# another syntax error comes first. So up to here no quotes but backslashes, and here is that error.
case $1 in
2)
  \set +o posix
  \eval \)
  POSIXLY_CORRECT=
  ;;
esac

# Under `ulimit -f` the dump fails, and not the shell.
\trap '' XFSZ
[[ $1 == exit ]] || \trap -p EXIT
# No fork: $(<file) reads. The two ends of the trap text are those of EXIT_TRAP in shell.py.
if [[ $1 == exit || $(<"/proc/$PPID/fd/102") == "trap -- '{ \\. \"/proc/\$PPID/fd/101\" exit "*'=102))"'"' EXIT" ]]
then
  \trap - DEBUG ERR RETURN EXIT
  \set +aefuvxHkT
  # The one function that is in our way is shown first; `export -f` tells which of them exist.
  if \export -f builtin
  then
    if ! \export -f declare
    then
      \declare -f builtin
    elif \export -nf declare && ! \export -f command
    then
      \command declare -f builtin
    fi
  fi
  \unset -f builtin
  # Unset, they no longer change from call to call: an unchanged state is known by its bytes.
  \unset -v RANDOM SRANDOM SECONDS EPOCHSECONDS EPOCHREALTIME BASHPID BASH_COMMAND BASH_SUBSHELL \
    BASH_EXECUTION_STRING BASH_REMATCH BASH_XTRACEFD LINENO HISTCMD PIPESTATUS GROUPS DIRSTACK \
    BASH_ARGC BASH_ARGV BASH_LINENO BASH_SOURCE BASH_ALIASES FUNCNAME _ \
    ENGINE_TASK_ID ENGINE_CALLER ENGINE_HOME
  \set +o posix
  # The status is known, and nothing of the command's is left to run: who waits need not wait for
  # the rest. Status, processor times and directory, each with its NUL; see telling.py.
  [[ $1 == exit ]] || {
    \builtin printf '%s\0' "$1"
    \builtin times
    \builtin printf '\0'
    \builtin pwd
    \builtin printf '\0'
  } >"/proc/$PPID/fd/105"
  \builtin hash -r
  \builtin printf '\0begin\0%s\0' "$_engine_was"
  \builtin pwd
  \builtin printf '\0'
  \builtin umask
  \builtin printf '\0'
  \builtin alias -p
  \builtin printf '\0'
  \builtin declare -p
  \builtin printf '\0'
  \builtin declare -F
  \builtin printf '\0'
  \builtin declare -f
  \builtin printf '\0end\0'
else
  ( \. "/proc/$PPID/fd/101" exit )
  \trap - XFSZ
  if [[ $_engine_was == */=* ]]
  then
    POSIXLY_CORRECT=${_engine_was#*/=}
  else
    # Leaving posix mode puts these where they are by default, not where they were.
    \set +o posix
    [[ $_engine_was != *:expand_aliases:* ]] || \builtin shopt -s expand_aliases
    [[ $_engine_was != *:shift_verbose:* ]] || \builtin shopt -s shift_verbose
    [[ $_engine_was == *:inherit_errexit:* ]] || \builtin shopt -u inherit_errexit
  fi
  \builtin unset -v _engine_was
fi
\return "${1/#exit/0}"
