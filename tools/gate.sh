#!/usr/bin/env bash
# The gate of action.yml: judges GATE_LOGS with the zipapp in RUNNER_TEMP, and ends with the status of that.
# Everything comes in variables (GATE_…, those of the runner); nothing of it is ever part of a script.
set -uo pipefail

stop() { # a message that the page of the run shows
    echo "::error title=nccl-inspect::$1"
    exit 2
}

[[ -n $GATE_POLICY && -n $GATE_FAIL_ON ]] && stop "policy and fail-on exclude each other; set max_severity in the policy"
logs=()
while IFS= read -r line; do
    line=${line%$'\r'}
    [[ -n ${line//[[:space:]]/} ]] && logs+=("$line")
done <<< "$GATE_LOGS"
[[ ${#logs[@]} -gt 0 ]] || stop "the input 'logs' is empty; name a log"

tool=("$GATE_PYTHON" "$RUNNER_TEMP/nccl-inspect.pyz")
given=(--no-color --no-progress)
[[ -n $GATE_PLATFORM ]] && given+=("--platform=$GATE_PLATFORM")
report=(summarize "${given[@]}")
if [[ -n $GATE_POLICY ]]; then
    gate=(check "${given[@]}" "--policy=$GATE_POLICY")
else
    gate=("${report[@]}" "--fail-on=${GATE_FAIL_ON:-error}")
fi

# What stands in a log is no command to the runner.
token=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
echo "::stop-commands::$token"
"${tool[@]}" "${gate[@]}" -- "${logs[@]}" 2>&1
status=$?
echo
echo "::$token::"

echo "status=$status" >> "$GITHUB_OUTPUT"
if [[ $status -gt 1 ]]; then
    echo "::error title=nccl-inspect::no verdict (status $status); the log of this step says why"
    exit "$status"
fi

write() { # FILE FORMAT COMMAND…: one more format; a gate that is closed is no error here
    local file=$1 form=$2
    shift 2
    mkdir -p -- "$(dirname -- "$file")"
    "${tool[@]}" "$@" "--format=$form" "--output=$file" -- "${logs[@]}" 2> /dev/null
    [[ $? -le 1 ]] || stop "$form cannot be written to the file that is wanted"
}

json=$RUNNER_TEMP/nccl-inspect.json
write "$json" json "${report[@]}"
verdict=$("$GATE_PYTHON" -c 'import json, sys; print(json.load(open(sys.argv[1]))["verdict"])' "$json")
echo "verdict=$verdict" >> "$GITHUB_OUTPUT"
if [[ $GATE_SUMMARY == true ]]; then
    [[ -n $GATE_POLICY ]] && "${tool[@]}" "${gate[@]}" --format=markdown -- "${logs[@]}" 2> /dev/null >> "$GITHUB_STEP_SUMMARY"
    "${tool[@]}" "${report[@]}" --format=markdown -- "${logs[@]}" 2> /dev/null >> "$GITHUB_STEP_SUMMARY"
fi
[[ $GATE_ANNOTATIONS == true ]] && "${tool[@]}" "${gate[@]}" --format=github -- "${logs[@]}" 2> /dev/null
[[ -n $GATE_SARIF ]] && write "$GATE_SARIF" sarif "${report[@]}"
[[ -n $GATE_JUNIT ]] && write "$GATE_JUNIT" junit "${gate[@]}"
[[ -n $GATE_HTML ]] && write "$GATE_HTML" html "${report[@]}"
exit "$status"
