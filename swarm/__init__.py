"""Many machines: Redis, nodes and frontends as one stack on a Docker Swarm.

    variables + stack.yml (+ more files) -> rendered stack -> check -> docker stack deploy -> Docker's tasks -> ready, or a cause

All calls go through the `docker` command, so DOCKER_HOST and docker contexts work. All state is kept in the Swarm.
"""
