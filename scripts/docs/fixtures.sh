# Fixtures of documentation blocks: functions `need_NAME`, called by a line `needs: NAME ARGUMENTS` before the block. Sourced
# by the shell in which scripts/check-docs runs a page.

port() { local pair; for pair in $CHECK_DOCS_PORTS; do [ "${pair%%=*}" != "$1" ] || echo "${pair#*=}"; done; }

# A user's file: a model under this name.
need_model() {
  "$CHECK_DOCS_BIN/tierlab-models" generate --model mlp --repository .brought > .brought.log
  cp .brought/mlp/1/model.onnx "$1"
}

# Generated models and a feature table in models/, and published to local NVMe.
need_data() {
  [ -d models/repository ] || "$CHECK_DOCS_BIN/tierlab-models" generate --model ctr --model mlp
  [ -d models/features ] || "$CHECK_DOCS_BIN/tierlab-models" features --table ctr --rows 2000
  mkdir -p data/nvme
  "$CHECK_DOCS_BIN/tierlab-models" publish --to configs/tiers/nvme.toml
}

# A server at the page's address, with these arguments, instead of a running one.
need_server() {
  need_stop
  "$CHECK_DOCS_BIN/tierlab-server" --tier nvme --listen "127.0.0.1:$(port 8000)" --grpc-listen "127.0.0.1:$(port 8001)" "$@" > .server.log 2>&1 &
  server_pid=$!
  curl -s "http://127.0.0.1:$(port 8000)/v2/health/ready" > .ready.log || { cat .server.log; return 1; }
}

# Embedded S3, NFS and Flight at the addresses of the shipped files, with data.
need_origins() {
  mkdir -p data/s3 data/nfs data/flight
  "$CHECK_DOCS_BIN/tierlab-origin" --s3-root data/s3 --s3-listen "127.0.0.1:$(port 9000)" --nfs-root data/nfs --nfs-listen "127.0.0.1:$(port 11111)" \
    --flight-root data/flight --flight-listen "127.0.0.1:$(port 8815)" > .origins.log 2>&1 &
  for _ in $(seq 300); do grep -q '}' .origins.log && break; sleep 0.1; done
  local tier
  for tier in "$@"; do
    case $tier in
      flight) cp -r models/features data/flight ;;
      *) "$CHECK_DOCS_BIN/tierlab-models" publish --to "configs/tiers/$tier.toml" ;;
    esac
  done
}

# A bucket of another make, where the AWS environment points: signed requests, no endpoint in any file.
need_bucket() {
  local at
  at=$(python3 -c 'import socket; s = socket.create_server(("127.0.0.1", 0)); print(s.getsockname()[1])')
  "$CHECK_DOCS_ROOT/.runtime/venv/bin/moto_server" -H 127.0.0.1 -p "$at" > .moto.log 2>&1 &
  export AWS_ENDPOINT_URL="http://127.0.0.1:$at" AWS_ACCESS_KEY_ID=docs AWS_SECRET_ACCESS_KEY=docs
  curl -s -X PUT "$AWS_ENDPOINT_URL/$1" -H "Content-Type: application/xml" > .bucket.log
}

# A kept run, under these names.
need_runs() { local name; for name in "$@"; do cp -r results/kept "$name"; done; }

# The run `before` of a plan, against the server.
need_before() {
  rm -rf results/before results/after
  tierlab-loadgen sweep "$1" --url "http://127.0.0.1:$(port 8000)" --name before
}

# Frees the address of the page's next server.
need_stop() { [ -z "${server_pid:-}" ] || { kill "$server_pid"; wait "$server_pid" || true; server_pid=; }; }

# Stops servers that the page started, as a reader would.
need_pause() { local job; for job in $(jobs -p); do kill "$job" 2> .kill.log || true; wait "$job" || true; done; server_pid=; }

# A model of a user's own, imported under this name and published to local NVMe.
need_own() {
  need_data
  need_model ".$1.onnx"
  "$CHECK_DOCS_BIN/tierlab-models" import ".$1.onnx" --name "$1"
  "$CHECK_DOCS_BIN/tierlab-models" publish --to configs/tiers/nvme.toml --model "$1"
}

# A Parquet file with text keys and a vector of 64 floats.
need_users() {
  mkdir -p data/nvme
  "$CHECK_DOCS_ROOT/.runtime/venv/bin/python" - "$1" <<'PY'
import sys
import pyarrow
import pyarrow.parquet
keys = [f"user-{number}" for number in range(100)]
vectors = [[(number * 7 + place) % 13 / 13 for place in range(64)] for number in range(100)]
columns = {"user_id": keys, "vector": pyarrow.array(vectors, pyarrow.list_(pyarrow.float32(), 64))}
pyarrow.parquet.write_table(pyarrow.table(columns), sys.argv[1])
PY
}

# A model whose input is read from the table `users`.
need_joined() {
  need_model ".$1.onnx"
  printf 'max_batch_size = 32\n[joined.input]\ntable = "users"\ncolumn = "vector"\n' > .joined.toml
  "$CHECK_DOCS_BIN/tierlab-models" import ".$1.onnx" --name "$1" --config .joined.toml
  "$CHECK_DOCS_BIN/tierlab-models" publish --to configs/tiers/nvme.toml
}
