# Redis for the stack in tests, from Debian's package: --target redis.
ARG BASE=python:3.11-slim-bookworm
FROM ${BASE} AS redis
RUN apt-get update && apt-get install -y --no-install-recommends redis-server && rm -rf /var/lib/apt/lists/* \
    && install -d -o redis -g redis /data
VOLUME /data
WORKDIR /data
USER redis
EXPOSE 6379
CMD ["redis-server"]
