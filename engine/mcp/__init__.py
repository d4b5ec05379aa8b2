"""The MCP face: agents speak MCP with a helper process of the engine, and it RPC with the engine.

| process | modules |
|---|---|
| the engine | `handing`: starts the helper, hands it connections that the front door let in |
| the helper | `helper` and what it imports: the only one that loads the MCP SDK |
| `engine mcp` | `pipe` between an agent's stdio and the engine, or `forward` with `--http` |

`control` is what engine and helper tell each other.
"""
