#!/bin/bash
# The health check of the images: healthy node|frontend. No Python, which would cost a hundred times as much each time.
case $1 in
node)
  # The supervisor touches this file every two seconds while it serves; it may be late when it looks for a Redis that is away.
  [[ -n $(find "$CLUSTER_SERVING_HOME" -mindepth 2 -maxdepth 2 -name serving -newermt '-30 seconds') ]]
  ;;
frontend)
  exec 3<>"/dev/tcp/127.0.0.1/${CLUSTER_SERVING_PORT:-10020}" || exit 1
  printf 'GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n' >&3
  read -r _ status _ <&3
  [[ $status == 200 ]]
  ;;
esac
