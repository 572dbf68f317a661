"""The model server itself: routes, the strict gate before every answer, and a round played over HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import socket
from collections import deque
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from turnkeeper.errors import ScriptInvalid
from turnkeeper.provider.script import Round, Script, ScriptedError, load_script, parse_script
from turnkeeper.provider.wire import Violation
from turnkeeper.testing.model_server.anthropic_wire import AnthropicWire
from turnkeeper.testing.model_server.chat_wire import ChatWire
from turnkeeper.testing.model_server.gemini_wire import GeminiWire
from turnkeeper.testing.model_server.responses_wire import ResponsesWire
from turnkeeper.testing.model_server.wire import Asked, Played, Wire, first_and_last, pieces

REQUESTS_KEPT_MAX: Final = 1000
BODY_BYTES_MAX: Final = 200_000_000
PING_SECONDS: Final = 0.05


class Seen(msgspec.Struct, kw_only=True):
    """A request that came, and what became of it."""

    path: str
    wire: str
    account: str
    body: bytes
    """As it was received; its account stands for the key, which is not kept."""
    status: int = 200
    violations: tuple[Violation, ...] = ()
    round: int | None = None
    blocks: list[Any] = msgspec.field(default_factory=list)
    """The blocks that were sent, in the provider's own shape, whole."""
    finished: bool = False
    """Whether the answer was sent to its end."""

    @property
    def json(self) -> Any:
        """The body, decoded."""
        return json.loads(self.body)


class ModelServer:
    """Serves a script on 127.0.0.1 as long as it is entered."""

    def __init__(
        self,
        script: Script | dict[str, Any] | str | Path | None = None,
        *,
        key: str | None = None,
        models: tuple[str, ...] | None = None,
        chat: str = "openai-chat",
        bedrock: bool = False,
        strict: bool = True,
        host: str = "127.0.0.1",
        port: int = 0,
        ssl_certfile: str | None = None,
        ssl_keyfile: str | None = None,
    ) -> None:
        """`script`: a Script, its JSON object, or a path. Raises ScriptInvalid.

        `key`: the only key that is accepted (None: any, each an account of its own). `models`: the only
        models. `chat`: which variant's rules /v1/chat/completions keeps. `strict=False` lets every body in.
        """
        self.script = _script(script)
        self.requests: deque[Seen] = deque(maxlen=REQUESTS_KEPT_MAX)
        self.strict = strict
        self._key = key
        self._models = models
        self._host, self._port = host, port
        self._tls = (ssl_certfile, ssl_keyfile)
        self._failures: dict[str, int] = {}
        self._wires: dict[str, Wire] = {
            "anthropic": AnthropicWire(bedrock=bedrock),
            "chat": ChatWire(chat),
            "responses": ResponsesWire(),
            "gemini": GeminiWire(),
        }
        self._server: uvicorn.Server | None = None
        self._serving: asyncio.Task[None] | None = None
        self.url = ""

    # -- life

    async def __aenter__(self) -> ModelServer:
        listening = socket.create_server((self._host, self._port))
        host, port = listening.getsockname()[:2]
        certfile, keyfile = self._tls
        self.url = f"{'https' if certfile else 'http'}://{host}:{port}"
        config = uvicorn.Config(
            self.app(),
            log_config=None,
            log_level="critical",
            access_log=False,
            lifespan="off",
            timeout_graceful_shutdown=0,
            # An idle connection that is closed just as a request comes would be a fault that no script asked for.
            timeout_keep_alive=3600,
            ssl_certfile=certfile,
            ssl_keyfile=keyfile,
        )
        self._server = uvicorn.Server(config)
        self._serving = asyncio.create_task(self._server._serve(sockets=[listening]))  # noqa: SLF001 - serve() would take the process's signals
        while not self._server.started:
            if self._serving.done():
                await self._serving
            await asyncio.sleep(0)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._server is not None
        assert self._serving is not None
        self._server.should_exit = True
        self._server.force_exit = True
        await self._serving

    def app(self) -> Starlette:
        """The ASGI application."""
        return Starlette(
            routes=[
                Route("/v1/messages", self._anthropic, methods=["POST"]),
                Route("/v1/chat/completions", self._chat, methods=["POST"]),
                Route("/chat/completions", self._chat, methods=["POST"]),
                Route("/v1/responses", self._responses, methods=["POST"]),
                Route("/responses", self._responses, methods=["POST"]),
                Route("/v1beta/models/{model}:{verb}", self._gemini, methods=["POST"]),
                Route("/v1/audio/transcriptions", self._transcribe, methods=["POST"]),
                Route("/_requests", self._list, methods=["GET"]),
            ]
        )

    # -- routes

    async def _list(self, _request: Request) -> Response:
        rows = []
        for seen in self.requests:
            row = msgspec.to_builtins(seen)
            try:
                row["body"] = seen.json
            except ValueError:
                row["body"] = seen.body.decode("utf-8", "replace")
            rows.append(row)
        return JSONResponse(rows)

    async def _anthropic(self, request: Request) -> Response:
        return await self._answer(request, self._wires["anthropic"], request.headers.get("x-api-key"))

    async def _chat(self, request: Request) -> Response:
        return await self._answer(request, self._wires["chat"], _bearer(request))

    async def _responses(self, request: Request) -> Response:
        return await self._answer(request, self._wires["responses"], _bearer(request))

    async def _gemini(self, request: Request) -> Response:
        key = request.headers.get("x-goog-api-key") or request.query_params.get("key")
        stream = request.path_params["verb"] == "streamGenerateContent"
        return await self._answer(
            request, self._wires["gemini"], key, request.path_params["model"], stream=stream
        )

    async def _transcribe(self, request: Request) -> Response:
        """Words of a recording: the script's round for the text `recording N bytes`, else just that text."""
        key = _bearer(request)
        account = hashlib.blake2b((key or "").encode(), digest_size=8).hexdigest()
        seen = Seen(path=request.url.path, wire="transcription", account=account, body=await request.body())
        self.requests.append(seen)
        if key is None or (self._key is not None and key != self._key):
            seen.status = 401
            return JSONResponse({"error": {"message": "invalid api key"}}, status_code=401)
        async with request.form() as form:
            file, model = form.get("file"), form.get("model")
            data = b"" if file is None or isinstance(file, str) else await file.read()
        if not data or not isinstance(model, str) or (self._models is not None and model not in self._models):
            seen.status = 400
            return JSONResponse(
                {"error": {"message": "a file and a known model are needed"}}, status_code=400
            )
        text = f"recording {len(data)} bytes"
        round_ = self.script.round(text, len([one for one in self.requests if one.path == seen.path]) - 1)
        if round_.stall_s:
            await asyncio.sleep(round_.stall_s)
        if round_.error is not None:
            seen.status = round_.error.status
            return JSONResponse({"error": {"message": "scripted"}}, status_code=round_.error.status)
        seen.finished = True
        return JSONResponse({"text": round_.text or text})

    async def _answer(
        self,
        request: Request,
        wire: Wire,
        key: str | None,
        model: str | None = None,
        *,
        stream: bool | None = None,
    ) -> Response:
        if key is None:
            key = _bearer(request)
        account = hashlib.blake2b((key or "").encode(), digest_size=8).hexdigest()
        data = await request.body()
        seen = Seen(path=request.url.path, wire=wire.name, account=account, body=data)
        self.requests.append(seen)
        if key is None or (self._key is not None and key != self._key):
            return _refuse(wire, seen, ScriptedError(status=401, message="invalid api key"))
        if len(data) > BODY_BYTES_MAX:
            return _refuse(wire, seen, ScriptedError(status=413, message="the request is too large"))
        try:
            body = json.loads(data)
        except (ValueError, RecursionError):
            return _refuse(
                wire, seen, ScriptedError(status=400, message="The request body is not valid JSON.")
            )
        named = model or (body.get("model") if isinstance(body, dict) else None)
        if self._models is not None and named not in self._models:
            return _refuse(wire, seen, ScriptedError(status=404, message=f"model: {named}"))
        if self.strict:
            seen.violations = wire.judge(body, str(named), account)
            if seen.violations:
                return _refuse(wire, seen, ScriptedError(status=400, message=seen.violations[0].sentence))
        asked = wire.read(body, str(named))
        if stream is not None:
            asked.stream = stream
        return await self._play(request, wire, seen, asked, account)

    async def _play(self, request: Request, wire: Wire, seen: Seen, asked: Asked, account: str) -> Response:
        text = asked.user_texts[-1] if asked.user_texts else ""
        prefix = hashlib.blake2b(
            "\0".join((wire.name, asked.model, *asked.user_texts)).encode("utf-8", "surrogatepass"),
            digest_size=16,
        ).hexdigest()
        seen.round = asked.rounds_since + self._failures.get(prefix, 0)
        try:
            round_ = self.script.round(text, seen.round)
        except ScriptInvalid as error:
            return _refuse(wire, seen, ScriptedError(status=500, message=error.sentence))

        def failed() -> None:
            self._failures[prefix] = self._failures.get(prefix, 0) + 1

        faulty = round_.is_fault or round_.first_token_silence_s > 0
        if round_.slow_headers_s and not await _still_there(request, round_.slow_headers_s):
            failed()
            return Response(status_code=499)  # nobody is there to read it
        if round_.error is not None and not round_.says_something:
            failed()
            return _refuse(wire, seen, round_.error)
        if round_.garbage == "html" and not round_.says_something:
            failed()
            return Response("<!doctype html><title>Welcome</title>", media_type="text/html")
        if not round_.says_something and round_.garbage is None and round_.raw is None and not round_.cut:
            silence = round_.first_token_silence_s + round_.stall_s
            round_ = msgspec.structs.replace(
                round_, text=f"ok {text}", first_token_silence_s=silence, stall_s=0.0
            )
        play = wire.play(round_, asked, account)
        seen.blocks = play.blocks
        if not asked.stream:
            return await self._whole(play, round_, seen)
        return _Streaming(_Player(play, round_), seen, failed if faulty else _nothing)

    async def _whole(self, play: Played, round_: Round, seen: Seen) -> Response:
        async for step in _Player(play, msgspec.structs.replace(round_, endless=False)).steps():
            if isinstance(step, float):
                await asyncio.sleep(step)
        seen.finished = True
        return Response(play.whole(_stop_reason(round_)), media_type="application/json")


def _script(script: Script | dict[str, Any] | str | Path | None) -> Script:
    if isinstance(script, Script):
        return script
    if isinstance(script, dict):
        return parse_script(script)
    return Script() if script is None else load_script(script)


def _bearer(request: Request) -> str | None:
    kind, _, key = request.headers.get("authorization", "").partition(" ")
    return key if kind.lower() == "bearer" and key else None


def _refuse(wire: Wire, seen: Seen, error: ScriptedError) -> Response:
    seen.status = error.status
    headers = {} if error.retry_after_s is None else {"retry-after": f"{error.retry_after_s:g}"}
    return Response(wire.error(error.status, error), error.status, headers, "application/json")


def _stop_reason(round_: Round) -> str:
    return round_.stop_reason or ("tool_use" if round_.tool_calls else "end_turn")


class _Cut(Exception):
    """The connection is to be broken here."""


class _Player:
    """A round as a row of steps: bytes to send, seconds to wait."""

    def __init__(self, play: Played, round_: Round) -> None:
        self._play = play
        self._round = round_
        self.whole = False

    async def steps(self) -> AsyncIterator[bytes | float]:
        """The steps. Raises _Cut where the connection is to break."""
        r, play = self._round, self._play
        if r.garbage == "empty":
            return
        for data in play.begin():
            yield data
        for one in self._silence(r.first_token_silence_s):
            yield one
        for words, voice in ((r.thinking, play.think), (r.text, play.say)):
            if not words:
                continue
            for piece, first, last in first_and_last(self._cut_up(words)):
                if r.chars_per_s is not None:
                    yield len(piece) / r.chars_per_s
                for data in voice(piece, first=first, last=last and not r.endless):
                    yield data
        while r.endless:
            yield PING_SECONDS
            for data in play.say(r.text or "more ", first=False, last=False):
                yield data
        for block in r.blocks or ():
            for data in play.block(block):
                yield data
        for call in r.tool_calls:
            raw = call.raw_arguments
            arguments = json.dumps(call.arguments) if raw is None else raw
            for data in play.call(call.id, call.name, arguments):
                yield data
        for one in self._silence(r.stall_s):
            yield one
        if r.raw is not None:
            yield r.raw.encode("latin-1")
        if r.garbage is not None:
            for data in self._garbage(r.garbage):
                yield data
        if r.error is not None:
            yield play.error(r.error)
            return
        if r.cut:
            raise _Cut
        if r.raw is None and r.garbage in (None, "unknown_event", "huge_delta"):
            for data in play.end(_stop_reason(r)):
                yield data
            self.whole = r.garbage != "huge_delta"

    def _cut_up(self, words: str) -> list[str]:
        speed = self._round.chars_per_s
        if speed is None:
            return pieces(words)
        size = max(1, int(speed * PING_SECONDS))
        return [words[at : at + size] for at in range(0, len(words), size)]

    def _silence(self, seconds: float) -> list[bytes | float]:
        if not seconds:
            return []
        if not self._round.pings:
            return [seconds]
        count = max(1, int(seconds / PING_SECONDS))
        return [PING_SECONDS, self._play.ping()] * count

    def _garbage(self, kind: str) -> list[bytes]:
        if kind == "unknown_event":
            return [self._play.unknown()]
        fixed = _GARBAGE.get(kind)
        return [fixed] if fixed is not None else list(self._play.garbage(kind))


_GARBAGE: Final = {
    "html": b"<!doctype html><title>Bad gateway</title>\n\n",
    "not_json": b"event: message\ndata: hello there\n\n",
    "half_json": b'event: message_start\ndata: {"type":"message_start","message":{"id":"m\n\n',
    "invalid_utf8": b'event: message_start\ndata: {"type":"\xff\xfe\xfa","choices":[]}\n\n',
}


class _Streaming(Response):
    """A round on its way to a client that may go away in the middle."""

    def __init__(self, player: _Player, seen: Seen, failed: Callable[[], None]) -> None:
        super().__init__(media_type="text/event-stream")
        del self.headers["content-length"]
        self._player = player
        self._seen = seen
        self._failed = failed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        sending = asyncio.create_task(self._send(send))
        gone = asyncio.create_task(_until_gone(receive))
        try:
            await asyncio.wait({sending, gone}, return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                sending.result()
        finally:
            for task in (sending, gone):
                task.cancel()
            await asyncio.wait({sending, gone})
            if self._player.whole:
                self._seen.finished = True
            else:
                self._failed()

    async def _send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        async for step in self._player.steps():
            if isinstance(step, float):
                await asyncio.sleep(step)
            else:
                await send({"type": "http.response.body", "body": step, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _still_there(request: Request, seconds: float) -> bool:
    """Whether the client waited `seconds` for the answer to begin."""
    gone = asyncio.create_task(_until_gone(request.receive))
    await asyncio.wait({gone}, timeout=seconds)
    there = not gone.done()
    gone.cancel()
    await asyncio.wait({gone})
    return there


def _nothing() -> None:
    """A round that was broken off for no fault of its own is played again."""


async def _until_gone(receive: Receive) -> None:
    with contextlib.suppress(asyncio.CancelledError):
        while (await receive())["type"] != "http.disconnect":
            pass


def serve_model(script: str | None, host: str = "127.0.0.1", port: int = 0, *, announce: Any = print) -> None:
    """Serve a script until interrupted: the verb `turnkeeper model-server`. Raises ScriptInvalid.

    `announce` is called once with the address.
    """

    async def serve() -> None:
        async with ModelServer(script, host=host, port=port) as server:
            announce(server.url)
            await asyncio.Event().wait()

    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve())
