#!/usr/bin/env python3
"""A server with one tool that does nothing, on the official SDK: the yardstick that agentbus mcp is measured beside."""

from __future__ import annotations

import anyio
from mcp import types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

NO_OP = types.Tool(name="noop", description="Does nothing.", input_schema={"type": "object"})


async def list_tools(_context: object, _params: object) -> types.ListToolsResult:
    """The one tool."""
    return types.ListToolsResult(tools=[NO_OP])


async def call_tool(_context: object, _params: object) -> types.CallToolResult:
    """Nothing, done."""
    return types.CallToolResult(content=[types.TextContent(type="text", text="{}")])


async def main() -> None:
    """Serve over stdin and stdout until stdin ends."""
    server: Server = Server("noop", on_list_tools=list_tools, on_call_tool=call_tool)
    async with stdio_server() as (reading, writing):
        await server.run(reading, writing, server.create_initialization_options())


if __name__ == "__main__":
    anyio.run(main)
