#!/usr/bin/env bash
# Runs every check in order, stops at the first failure, and says at the end what ran. `test.sh static` stops early.
set -uo pipefail
cd "$(dirname "$0")/.."
logs=build/test
mkdir -p "$logs"
rm -f "$logs"/*.log
summary=()
passed=0

step() { # step NAME COMMAND...
  local name="$1" log start seconds count
  shift
  log="$logs/${name// /-}.log"
  start=$SECONDS
  echo
  echo "== $name"
  if ! "$@" 2>&1 | tee "$log"; then
    print_summary
    echo "FAILED: $name (the output is in $log). Run it alone: $*"
    exit 1
  fi
  seconds=$((SECONDS - start))
  count="$(count_passed "$log")"
  passed=$((passed + count))
  summary+=("$(printf '%5ss  %-28s %s' "$seconds" "$name" "$([ "$count" -eq 0 ] || echo "$count passed")")")
}

# pytest says "3 passed", node's runner "pass 3" behind a sign, mocha "3 passing".
count_passed() {
  sed 's/\x1b\[[0-9;]*m//g' "$1" | awk '
    match($0, /[0-9]+ passed/) && !/step/ { split(substr($0, RSTART, RLENGTH), part, " "); total += part[1] }
    /^[^A-Za-z0-9]* ?pass [0-9]+$/ { total += $NF }
    match($0, /^ *[0-9]+ passing/) { split(substr($0, RSTART, RLENGTH), part, " "); total += part[1] }
    END { print total + 0 }'
}

print_summary() {
  echo
  printf '%s\n' "${summary[@]+"${summary[@]}"}"
}

static() {
  step "ruff check" "$BIN/ruff" check .
  step "ruff format" "$BIN/ruff" format --check .
  step "mypy" "$BIN/mypy"
  step "import contracts" "$BIN/lint-imports"
  step "generated pages" "$BIN/python" scripts/generate.py --check
  step "extension types and style" npm run --silent check
}

all() {
  static
  step "pytest" "$BIN/pytest"
  step "extension unit tests" npm run --silent test:unit
  step "package the extension" make --no-print-directory firstfault.vsix
  step "end to end" extension/test/e2e/run.sh
}

"$1"
print_summary
[ "$passed" -eq 0 ] || tests=", $passed tests"
echo "All passed: ${#summary[@]} steps${tests:-}, $((SECONDS / 60)) min $((SECONDS % 60)) s."
