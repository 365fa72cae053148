#!/usr/bin/env bash
# One pod of a sweep from several: index 0 conducts and the others send, each its share of one schedule. When index 0 has ended, the job has.
#
#   TIERLAB_URL             the server
#   TIERLAB_HOSTS           how many pods there are, the one that conducts among them
#   JOB_COMPLETION_INDEX    which one this is, as Kubernetes says
#   AGENTS_TOKEN            what all of them know, and nobody else
#   TIERLAB_AGENTS          the pods that send, as HOST:PORT,... (NAME-INDEX.SERVICE:7070 of the job NAME, which gives both one name)
#   TIERLAB_RESULTS_TIER    a tier's config: where the results are put, below results/ (they stay in the pod otherwise)
set -euo pipefail
index=${JOB_COMPLETION_INDEX:?the index of this pod is not known}
hosts=${TIERLAB_HOSTS:?how many pods there are is not known}
: "${TIERLAB_URL:?no server}" "${AGENTS_TOKEN:?the secret of the pods is not known}"
[ "$hosts" -ge 2 ] || { echo "run.sh: TIERLAB_HOSTS is $hosts: one pod conducts and at least one sends" >&2; exit 2; }
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
