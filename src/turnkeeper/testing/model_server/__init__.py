"""A model server for tests: real HTTP on the loopback, the wires of the providers, driven by a script.

It is as strict as the real thing: every request is judged by the same wire rules that Turnkeeper's own
requests pass (`provider/*_rules`), and refused with the provider's kind of error. Test your own agent
against it, from Python or from a shell:

    async with ModelServer({"rules": [{"match": "", "rounds": [{"text": "hello"}]}]}) as server:
        client = AsyncAnthropic(base_url=server.url, api_key="any")

    turnkeeper model-server --script script.json

Wires: POST /v1/messages (Anthropic), /v1/chat/completions, /v1/responses (OpenAI and compatibles),
/v1beta/models/NAME:generateContent and :streamGenerateContent (Gemini). GET /_requests lists what came.
"""

from __future__ import annotations

from turnkeeper.testing.model_server.server import ModelServer, Seen, serve_model

__all__ = ["ModelServer", "Seen", "serve_model"]
