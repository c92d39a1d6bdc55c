#!/usr/bin/env bash
# The main job on the examples: which failure came first in a log, and which lines of a script are silently wrong.
set -euo pipefail
cd "$(dirname "$0")/.."
firstfault="$1"

# 1 says that something was found, which is the point of the examples; anything above is a fault of ours.
show() {
  echo "\$ firstfault $*"
  "$firstfault" "$@" || [ $? -eq 1 ]
  echo
}

show diagnose examples/logs
show check examples/train.py
cat <<END
Next:
  $firstfault diagnose YOUR.log     a file, a folder of rank logs, or - for standard input
  $firstfault check YOUR_train.py   a script, a notebook or a folder
  $firstfault explain GA101         why a finding matters, and what its fix does not do
  make package                      the extension for VS Code, as dist/firstfault.vsix
  make editor                       a workbench in the browser to try it in
END
