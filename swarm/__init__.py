"""Many machines: Redis, nodes and frontends as one stack on a Docker Swarm.

    variables + stack.yml (+ others) -> rendered stack -> check -> docker stack deploy -> docker's tasks -> converged, or why not

Everything is asked of the `docker` command, so that DOCKER_HOST and contexts work; nothing is kept anywhere else.
"""
