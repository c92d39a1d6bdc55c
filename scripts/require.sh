#!/usr/bin/env bash
# Says clearly what is missing or too old: `require.sh python [NAME]`, `require.sh node`.
set -euo pipefail

fail() {
  echo "$1" >&2
  exit 1
}

require_python() {
  command -v "$1" >/dev/null || fail "Firstfault needs Python 3.10 or newer, and there is no '$1' here. Name one: make PYTHON=/path/to/python3 ..."
  "$1" -c 'import sys; sys.exit(sys.version_info < (3, 10))' ||
    fail "Firstfault needs Python 3.10 or newer; '$1' is $("$1" --version 2>&1). Name another: make PYTHON=/path/to/python3 ..."
  "$1" -c 'import ensurepip, venv' 2>/dev/null ||
    fail "'$1' cannot make virtual environments. On Debian and Ubuntu: apt-get install python3-venv"
}

require_node() {
  command -v node >/dev/null || fail "The extension needs Node.js 20 or newer, and there is no 'node' here."
  command -v npm >/dev/null || fail "The extension needs npm, and there is none beside $(command -v node)."
  node -e 'process.exit(Number(process.versions.node.split(".")[0]) < 20 ? 1 : 0)' ||
    fail "The extension needs Node.js 20 or newer; $(command -v node) is $(node --version)."
}

"require_$1" "${2:-python3}"
