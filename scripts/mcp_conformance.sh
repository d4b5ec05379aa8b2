#!/usr/bin/env bash
# The outside tests of MCP: the conformance suite in both revisions and for the Tasks extension, and
# calls of the inspector, against the engine as it is installed. Exits 0 only if all pass.
#
# The suite asks for tools, prompts and resources of its own: scripts/mcp_fixtures mounts them in the
# helper of this engine. Node and the packages come from npm once, into a folder of the user's cache.
# MCP_RESULTS=DIR keeps what the suite found.
set -euo pipefail

node_version=24.21.0
suite_version=0.2.0-alpha.12
inspector_version=2.12.0
task_scenarios=(
  tasks-lifecycle tasks-capability-negotiation tasks-wire-fields tasks-request-state-removal
  tasks-request-headers tasks-dispatch-and-envelope tasks-required-task-error
  tasks-mrtr-composition tasks-mrtr-input
)

root=$(cd "$(dirname "$0")/.." && pwd)
engine=$root/.venv/bin/engine
cache=${XDG_CACHE_HOME:-$HOME/.cache}/engine/mcp-suite-$suite_version-$inspector_version
work=$(mktemp -d)
results=${MCP_RESULTS:-$work/results}
home=$work/home
failed=()

end() {
  [[ -z ${proxy:-} ]] || kill "$proxy" 2>/dev/null || true
  [[ ! -e $home/engine.json ]] || "$engine" --home "$home" --quiet stop --cancel || true
  rm -rf "$work"
}
trap end EXIT

check() { # NAME COMMAND...: its output is shown where it fails, and its last line always
  local name=$1 code=0
  shift
  "$@" >"$work/output" 2>&1 || code=$?
  if ((code)); then
    failed+=("$name")
    tail -n 60 "$work/output" | sed 's/^/    /'
  fi
  printf '%-48s exit %d  %s\n' "$name" "$code" \
    "$(grep -aE '^Total:|^Passed:' "$work/output" | tail -n 1 || true)"
}

install_suite() {
  [[ -e $cache/installed ]] && return
  command -v npm >/dev/null || { echo "npm is needed, to fetch Node and the suite" >&2; exit 69; }
  echo "fetching node $node_version, conformance $suite_version, inspector $inspector_version"
  mkdir -p "$cache"
  echo '{"private": true}' >"$cache/package.json"
  npm install --prefix "$cache" --silent --no-audit --no-fund --save-exact \
    "node@$node_version" "@modelcontextprotocol/conformance@$suite_version" \
    "@modelcontextprotocol/inspector@$inspector_version"
  touch "$cache/installed"
}

start_engine() { # with the fixtures; sets url and token
  mkfifo "$work/ready"
  PYTHONPATH=$root/scripts/mcp_fixtures:$root "$engine" --home "$home" serve \
    --slots 100 --set min_free_bytes=0 --notify-fd 3 3>"$work/ready" 2>"$work/engine.log" &
  read -r _ <"$work/ready"
  url=$(fact "['url'].replace('ws://', 'http://').replace('/rpc', '/mcp')")
  token=$(fact "['tokens']['agent']")
}

fact() {
  "$root/.venv/bin/python" -c "import json, sys; print(json.load(open(sys.argv[1]))$1)" \
    "$home/engine.json"
}

start_proxy() { # sets open_url, at which a request needs no token
  mkfifo "$work/url"
  node "$root/scripts/mcp_fixtures/token_proxy.mjs" "$url" "$token" >"$work/url" &
  proxy=$!
  read -r open_url <"$work/url"
}

conformance() {
  node "$cache/node_modules/@modelcontextprotocol/conformance/dist/index.js" \
    server --url "$open_url" --output-dir "$results" "$@"
}

inspector() {
  HOME=$work node "$cache/node_modules/.bin/mcp-inspector" --cli "$@"
}

install_suite
export PATH=$cache/node_modules/node/bin:$PATH
start_engine
start_proxy

for revision in 2026-07-28 2025-11-25; do
  check "conformance $revision" conformance --suite all --spec-version "$revision" \
    --expected-failures "$root/tests/mcp/expected-failures.$revision.yml"
done
for scenario in "${task_scenarios[@]}"; do
  check "conformance $scenario" conformance --scenario "$scenario" \
    --expected-failures "$root/tests/mcp/expected-failures.tasks.yml"
done

# The inspector is a client that can send a token, and start `engine mcp`: an engine without fixtures.
plain=$work/plain
"$engine" --home "$plain" --quiet run true
bare=("$engine" --home "$plain" mcp)
echo_hi=(--method tools/call --tool-name bash --tool-args-json '{"command": "echo hi"}')
for era in legacy modern; do
  over=(--protocol-era "$era" --format json --quiet)
  check "inspector stdio $era tools/list --strict" \
    inspector "${bare[@]}" "${over[@]}" --method tools/list --strict
  check "inspector stdio $era tools/call" inspector "${bare[@]}" "${over[@]}" "${echo_hi[@]}"
  check "inspector http $era tools/call" \
    inspector "$url" --header "Authorization: Bearer $token" "${over[@]}" "${echo_hi[@]}"
  check "inspector http $era resources/list" \
    inspector "$url" --header "Authorization: Bearer $token" "${over[@]}" --method resources/list
done
"$engine" --home "$plain" --quiet stop --cancel

if ((${#failed[@]})); then
  printf 'FAILED: %s\n' "${failed[@]}"
  exit 1
fi
echo "all passed"
