#!/bin/sh
# One container with everything in it, Redis too, on the network of this machine. Start it in the folder of your model:
#
#   docker/docker-run.sh [IMAGE]
#   docker exec -it cluster-serving bash       then, as without a container:
#     cluster-serving init                     writes config.yaml into your folder; set modelPath in it, relative to the folder
#     cluster-serving start                    starts a Redis too, on port 6379 of 127.0.0.1
#     cluster-serving stop
#
# `docker stop cluster-serving` lets the node finish and Redis write; its data stays in the volume `cluster-serving`.
set -eu
image=${1:-cluster-serving-node:latest}
docker run --detach --name cluster-serving --net=host --stop-timeout 60 \
  --user "$(id -u):$(id -g)" --volume "$PWD:/work" --workdir /work --volume cluster-serving:/run/cluster-serving \
  --no-healthcheck --entrypoint tini "$image" -- \
  bash -c 'trap "cluster-serving stop --all; cluster-serving shutdown; exit" TERM; sleep infinity & wait'
