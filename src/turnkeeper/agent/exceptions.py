"""Failures of an agent that is somebody else's code: from the exception to the failure value.

Frameworks raise what their SDKs raise. Those have a status or a well-known name, which say whether trying
again can help; everything else is not retried by itself (seed 003: unknown is not retryable).
"""

from __future__ import annotations

from turnkeeper.conversation.turns import Failure
from turnkeeper.port.provider import ProviderFailed
from turnkeeper.provider.failures import failure, from_error

CONNECTION_NAMES = frozenset(
    {
        "APIConnectionError",
        "APITimeoutError",
        "ConnectError",
        "ConnectTimeout",
        "ReadError",
        "ReadTimeout",
        "RemoteProtocolError",
        "WriteError",
        "PoolTimeout",
    }
)
"""Names under which HTTP clients and model SDKs raise a lost or late connection."""
CAUSES_MAX = 8


class AgentFailed(Exception):
    """Raise this to say exactly how an agent failed."""

    def __init__(self, failure: Failure) -> None:
        self.failure = failure
        super().__init__(failure.sentence)


def failure_of(error: BaseException, agent: str) -> Failure:
    """The failure that an exception of an agent's code is."""
    found: BaseException | None = error
    for _ in range(CAUSES_MAX):
        if found is None:
            break
        if isinstance(found, AgentFailed | ProviderFailed):
            return found.failure
        status = getattr(found, "status_code", None)
        if isinstance(status, int):
            return _of_status(found, status)
        if type(found).__name__ in CONNECTION_NAMES or isinstance(found, ConnectionError | TimeoutError):
            return failure("connection", where="its model", why=f"{type(found).__name__}")
        found = found.__cause__ or found.__context__
    return Failure(
        kind="agent",
        retryable=False,
        sentence=f"The agent {agent} stopped with an error of its own: {type(error).__name__}: {error}",
    )


def _of_status(error: BaseException, status: int) -> Failure:
    response = getattr(error, "response", None)
    headers = getattr(response, "headers", None)
    body = getattr(error, "body", None)
    return from_error(
        body if isinstance(body, dict) else {"error": {"message": str(error)}},
        status=status,
        headers={} if headers is None else {str(k).lower(): str(v) for k, v in dict(headers).items()},
        where="the agent's model",
    )
