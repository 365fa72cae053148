#!/usr/bin/env bash
# One host of a sweep from several. Needs TIERLAB_URL, TIERLAB_HOSTS (how many there are), the index of this one
# (JOB_COMPLETION_INDEX, as Kubernetes gives it, or SLURM_PROCID), and a folder that all of them share (TIERLAB_RESULTS, /results).
#
# All wait until everyone is there, then each sends the plan's full rate; index 0 waits for the others and merges. A host that fails
# writes that down, and index 0 ends with its name in place of waiting for it. Waiting is bounded by TIERLAB_WAIT_S (600)
# for the start and TIERLAB_SWEEP_S (7200) for the end.
set -euo pipefail
index=${JOB_COMPLETION_INDEX:-${SLURM_PROCID:?the index of this host is not known: set JOB_COMPLETION_INDEX}}
hosts=${TIERLAB_HOSTS:?how many hosts send is not known: set TIERLAB_HOSTS}
: "${TIERLAB_URL:?no server: set TIERLAB_URL}"
plan=${TIERLAB_PLAN:-/etc/tierlab/load/plan.toml}
# One folder for each attempt: marks of an earlier one would be taken for this one's.
folder=${TIERLAB_RESULTS:-/results}/${TIERLAB_RUN:-${SLURM_JOB_ID:-run}}
mkdir -p "$folder/marks"
rm -f "$folder/marks/"*"-$index"

# wait_for KIND COUNT SECONDS: until COUNT hosts have left a mark of KIND, or one has failed.
wait_for() {
  local kind=$1 count=$2 until=$((SECONDS + $3)) there failed
  while :; do
    failed=$(find "$folder/marks" -name 'failed-*' -printf '%f ')
    [ -z "$failed" ] || { echo "run.sh: ended, because of $failed" >&2; return 1; }
    there=$(find "$folder/marks" -name "$kind-*" | wc -l)
    [ "$there" -lt "$count" ] || return 0
    [ "$SECONDS" -lt "$until" ] || { echo "run.sh: $there of $count hosts are $kind after $3 s: see the log of the others" >&2; return 1; }
    sleep 0.2
  done
}

trap 'code=$?; [ "$code" = 0 ] || touch "$folder/marks/failed-$index"' EXIT
touch "$folder/marks/ready-$index"
wait_for ready "$hosts" "${TIERLAB_WAIT_S:-600}"
tierlab-loadgen sweep "$plan" --url "$TIERLAB_URL" --host "$index" --out "$folder" --name "host-$index"
touch "$folder/marks/done-$index"
[ "$index" = 0 ] || exit 0
wait_for done "$hosts" "${TIERLAB_SWEEP_S:-7200}"
runs=()
for ((host = 0; host < hosts; host++)); do runs+=("$folder/host-$host"); done
tierlab-loadgen merge "${runs[@]}" --out "$folder/merged"
echo "run.sh: $folder/merged"
