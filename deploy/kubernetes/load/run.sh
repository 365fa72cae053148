#!/usr/bin/env bash
# One pod of a sweep from several pods: index 0 conducts, the others send shares of one schedule. The job ends with index 0.
#
#   TIERLAB_URL             the server
#   TIERLAB_HOSTS           number of pods, including the conductor
#   JOB_COMPLETION_INDEX    index of this pod, set by Kubernetes
#   AGENTS_TOKEN            token shared by all pods
#   TIERLAB_AGENTS          agents, as HOST:PORT,... (default: NAME-INDEX.NAME:7070 of the job NAME)
#   TIERLAB_RESULTS_TIER    tier's config: results are uploaded below its results/ (default: they stay in the pod)
set -euo pipefail
index=${JOB_COMPLETION_INDEX:?set it to the index of this pod}
hosts=${TIERLAB_HOSTS:?set it to the number of pods}
: "${TIERLAB_URL:?set it to the URL of the server}" "${AGENTS_TOKEN:?set it to the token of all pods}"
[ "$hosts" -ge 2 ] || { echo "run.sh: TIERLAB_HOSTS is $hosts; use at least 2, a conductor and an agent" >&2; exit 2; }
[ "$index" = 0 ] || exec tierlab-loadgen agent --listen "${TIERLAB_LISTEN:-0.0.0.0:7070}" --token-env AGENTS_TOKEN

job=${TIERLAB_JOB:-tierlab-load}
agents=${TIERLAB_AGENTS:-}
if [ -z "$agents" ]; then
  for ((host = 1; host < hosts; host++)); do agents+="${agents:+,}$job-$host.$job:7070"; done
fi
folder=${TIERLAB_RESULTS:-/results}
tierlab-loadgen sweep "${TIERLAB_PLAN:-/etc/tierlab/load/plan.toml}" --url "$TIERLAB_URL" --agents "$agents" --agents-token-env AGENTS_TOKEN \
  --agents-start-wait-s "${TIERLAB_WAIT_S:-600}" --out "$folder" --name "${TIERLAB_RUN:-run}"
[ -z "${TIERLAB_RESULTS_TIER:-}" ] || tierlab-models publish --run "$folder/${TIERLAB_RUN:-run}" --to "$TIERLAB_RESULTS_TIER"
