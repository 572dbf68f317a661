"""Tools of MCP servers, over stdio and streamable HTTP, behind the same `Tool` as our own (DESIGN 3).

Read in this order: `config` (what the agents file says of a server), `servers` (all of them, and the tools of
one for one person), `connection` (one living connection), `listing` (what a server says of a tool, judged),
`stdio` and `wire` (the two transports, with their bounds), `grants` and `oauth` (who is signed in where).

A server is not trusted: it may die, hang, flood, lie about types, change its tools, send us elsewhere. None of
it may do more than fail the call. A call that is refused for want of a sign-in raises SignInNeeded; the loop
parks it.
"""

from __future__ import annotations

from turnkeeper.tool.mcp.config import McpServer
from turnkeeper.tool.mcp.grants import Grant, Vault
from turnkeeper.tool.mcp.oauth import Finished
from turnkeeper.tool.mcp.servers import Limits, McpServers

__all__ = ["Finished", "Grant", "Limits", "McpServer", "McpServers", "Vault"]
