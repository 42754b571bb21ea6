"""Errors of the client as faults of a command."""

from collections.abc import Generator
from contextlib import contextmanager

from cluster_serving.client.errors import ClusterServingError, InvalidValue, ResultTimeout
from cluster_serving.client.servers.process.exit_codes import Fault, NoAnswer
from cluster_serving.node.commands.records_given import BadRecord


@contextmanager
def as_faults() -> Generator[None]:
    """Turn the errors of the client into one sentence each, for a block.

    Raises:
        Fault: in the place of an error of the client.
    """
    try:
        yield
    except ResultTimeout as error:
        raise NoAnswer(str(error)) from error
    except InvalidValue as error:
        raise BadRecord(str(error)) from error
    except ClusterServingError as error:
        raise Fault(str(error)) from error
