"""Mounts the fixtures in the engine's MCP helper, and in no other process.

Python imports this module by itself at its start where its folder is on PYTHONPATH: so the engine
and its helper run as they are installed, and only the face has something more to offer.
"""

import sys

if any("engine.mcp.helper" in word for word in sys.orig_argv):
    import engine.mcp.face
    from scripts.mcp_fixtures.face import FixtureFace

    engine.mcp.face.Face = FixtureFace  # type: ignore[misc]
