#!/usr/bin/env bash
# The main job on the examples: which failure came first in a log, and which lines of a script are silently wrong.
set -euo pipefail
cd "$(dirname "$0")/.."
firstfault="$1"
errors="$(mktemp)"
trap 'rm -f "$errors"' EXIT

# Exit status 1 says that something was found, which is the point of the examples. A fault of ours would print a
# traceback and end with 1 as well, so standard error must stay empty.
show() {
  local status=0
  printf '$ firstfault %s\n\n' "$*"
  "$firstfault" "$@" 2>"$errors" || status=$?
  cat "$errors" >&2
  [ "$status" -eq 1 ] && [ ! -s "$errors" ] || exit 1
  echo
}

show diagnose examples/logs
show check examples/train.py
cat <<END
Next:
  make package   builds the extension for VS Code: dist/firstfault.vsix
  make editor    opens a workbench in the browser with the extension and these examples
  $firstfault diagnose YOUR.log     a file, a folder of rank logs, or - for standard input
  $firstfault check YOUR_train.py   a script, a notebook or a folder
  $firstfault measure -- python YOUR_train.py   two optimizer steps with probes: proven or refuted
  $firstfault explain GA101         why a finding matters, and what its fix does not do
END
