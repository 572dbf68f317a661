"""What can go wrong between us and a model's server: each a sentence that says what to do, and never a key."""

from __future__ import annotations

import datetime
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.provider.kits import KEY_NAME, WIRES, Jumping, open_at, server_for
from turnkeeper.conversation.messages import Message
from turnkeeper.conversation.parts import Text, ToolCall
from turnkeeper.errors import ConfigError
from turnkeeper.port.provider import Deadlines, ModelCall, Provider, ProviderFailed, Reply
from turnkeeper.provider.live import check_live
from turnkeeper.provider.opening import open_provider, provider_names
from turnkeeper.testing.model_server import ModelServer

CANARY = "sk-canary-1234567890"


async def call(provider: Provider) -> Reply:
    feed = [Message(message_id="m", role="user", parts=(Text("hello"),))]
    body = provider.build(feed, instructions="", tools=(), options={})
    ask = ModelCall(body=body, deadlines=Deadlines(), newest_user_text="hello")
    try:
        replies = [event async for event in provider.stream(ask) if isinstance(event, Reply)]
    finally:
        await provider.close()
    return replies[0]


async def failure_of(provider: Provider) -> Any:
    with pytest.raises(ProviderFailed) as caught:
        await call(provider)
    failure = caught.value.failure
    assert CANARY not in f"{failure!r} {caught.value!r} {provider!r}"
    assert CANARY[8:] not in f"{failure!r}"
    assert ("Try again" in failure.sentence) == failure.retryable
    return failure


@pytest.mark.parametrize("provider", WIRES)
async def test_a_wrong_key_is_a_matter_of_credentials(provider: str) -> None:
    async with server_for(provider, key="another") as server:
        failure = await failure_of(open_at(server, provider))
    assert (failure.kind, failure.retryable, failure.status) == ("credentials", False, 401)
    assert "api_key_env" in failure.sentence


@pytest.mark.parametrize("provider", WIRES)
async def test_an_unknown_model_is_refused_with_a_hint_to_its_name(provider: str) -> None:
    async with server_for(provider, models=("other",)) as server:
        failure = await failure_of(open_at(server, provider))
    assert (failure.kind, failure.retryable, failure.status) == ("refused_request", False, 404)
    assert "model's name" in failure.sentence


@pytest.mark.parametrize("provider", WIRES)
async def test_an_address_where_nobody_listens_is_named(provider: str) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        server = ModelServer()
        server.url = f"http://127.0.0.1:{probe.getsockname()[1]}"
    failure = await failure_of(open_at(server, provider))
    assert (failure.kind, failure.retryable) == ("connection", True)
    assert server.url in failure.sentence
    assert "refused" in failure.sentence
    assert "base_url" in failure.sentence


@pytest.mark.parametrize("provider", WIRES)
async def test_a_server_without_tls_is_no_secure_address(provider: str) -> None:
    async with server_for(provider) as server:
        server.url = server.url.replace("http:", "https:")
        failure = await failure_of(open_at(server, provider))
    assert (failure.kind, failure.retryable) == ("tls", False)
    assert "base_url" in failure.sentence


@pytest.mark.parametrize("provider", WIRES)
async def test_a_certificate_that_nobody_vouches_for_is_no_secure_address(
    provider: str, tmp_path: Path
) -> None:
    cert, key = self_signed(tmp_path)
    async with server_for(provider, ssl_certfile=cert, ssl_keyfile=key) as server:
        failure = await failure_of(open_at(server, provider))
    assert failure.kind == "tls"
    assert "certificate" in failure.sentence


def self_signed(folder: Path) -> tuple[str, str]:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    cert_file, key_file = folder / "cert.pem", folder / "key.pem"
    cert_file.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    key_file.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return str(cert_file), str(key_file)


async def test_a_wrong_path_at_the_right_host_hints_to_base_url() -> None:
    async with server_for("openai-chat") as server:
        server.url += "/wrong"
        failure = await failure_of(open_at(server, "openai-chat"))
    assert (failure.kind, failure.status) == ("refused_request", 404)
    assert "base_url" in failure.sentence


@pytest.mark.parametrize("provider", WIRES)
async def test_an_answer_that_came_in_one_piece_is_read_all_the_same(
    provider: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = {"rules": [{"match": "", "rounds": [{"text": "hello", "tool_calls": [{"name": "now"}]}]}]}
    async with server_for(provider, script) as server:
        opened = open_at(server, provider)
        whole = ModelServer._play

        async def in_one_piece(
            self: Any, request: Any, wire: Any, seen: Any, asked: Any, account: str
        ) -> Any:
            asked.stream = False
            return await whole(self, request, wire, seen, asked, account)

        monkeypatch.setattr(ModelServer, "_play", in_one_piece)
        reply = await call(opened)
    assert reply.message.text == "hello"
    assert [part.name for part in reply.message.parts if isinstance(part, ToolCall)] == ["now"]
    assert reply.stop_reason == "tool_use"


def opened(**fields: Any) -> Provider:
    fields.setdefault("model", "m")
    return open_provider(fields.pop("provider", "anthropic"), clock=Jumping(), **fields)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"provider": "nobody"}, ["no provider 'nobody'", "anthropic", "scripted"]),
        ({"model": ""}, ["must name its model"]),
        ({"base_url": "localhost:8000"}, ["base_url", "https://host/v1"]),
        ({"base_url": "ftp://host"}, ["base_url"]),
        ({}, ["ANTHROPIC_API_KEY", "api_key_file"]),
        ({"api_key_env": "NOT_THERE"}, ["NOT_THERE"]),
        ({"api_key_file": "/nowhere/key"}, ["/nowhere/key", "No such file"]),
    ],
)
def test_what_cannot_be_opened_says_what_to_set(
    fields: dict[str, Any], says: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    with pytest.raises(ConfigError) as caught:
        opened(**fields)
    for words in says:
        assert words in caught.value.sentence


def test_a_key_file_is_read_and_a_bad_one_is_refused_without_its_content(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text(f"  {CANARY}\n")
    provider = opened(api_key_file=str(file))
    assert CANARY not in f"{provider!r} {provider.origin!r}"
    for content in (b"", b"\xff\xfe", b"two words here", "schlüssel".encode()):
        file.write_bytes(content)
        with pytest.raises(ConfigError) as caught:
            opened(api_key_file=str(file))
        assert "key" in caught.value.sentence
        assert "words here" not in caught.value.sentence


def test_the_key_of_a_providers_own_address_is_not_shown_to_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", CANARY)
    own = opened(provider="openai-chat")
    other = opened(provider="openai-chat", base_url="http://127.0.0.1:1/v1")
    assert own._key == CANARY
    assert other._key == ""


def test_accounts_differ_by_key_and_address_and_show_neither(monkeypatch: pytest.MonkeyPatch) -> None:
    accounts = set()
    for key in (CANARY, "sk-other"):
        monkeypatch.setenv(KEY_NAME, key)
        for base_url in (None, "http://user:secret@127.0.0.1:1"):
            origin = opened(api_key_env=KEY_NAME, base_url=base_url).origin
            accounts.add(origin.account)
            assert key not in origin.account
            assert "secret" not in origin.account
    assert len(accounts) == 4


def test_every_named_provider_opens_without_loading_an_sdk() -> None:
    program = f"""
import sys
from turnkeeper.provider.opening import open_provider, provider_names
for name in provider_names():
    assert open_provider(name, clock=None, model="m", api_key_env={KEY_NAME!r}).origin.provider == name
loaded = {{"anthropic", "openai", "httpx2"}} & set(sys.modules)
sys.exit(f"loaded: {{loaded}}" if loaded else 0)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert len(provider_names()) == 12


async def test_live_checks_say_of_each_model_whether_it_works() -> None:
    async with server_for("anthropic", models=("good",)) as server:
        fields = {"provider": "anthropic", "base_url": server.url, "api_key_env": KEY_NAME}
        found = await check_live(
            {
                "good": {**fields, "model": "good"},
                "bad": {**fields, "model": "bad"},
                "keyless": {"provider": "anthropic", "model": "x", "api_key_env": "NOT_THERE"},
                "demo": {"provider": "scripted"},
            },
            clock=Jumping(),
        )
        assert len(server.requests) == 2
        assert all(seen.json["max_tokens"] == 16 for seen in server.requests)
    good, bad, keyless, demo = found
    assert (good.works, good.name, good.model) == (True, "good", "good")
    assert "ok Reply with" in good.sentence
    assert (bad.works, bad.kind) == (False, "refused_request")
    assert (keyless.works, keyless.kind) == (False, "config")
    assert "NOT_THERE" in keyless.sentence
    assert demo.works
    assert CANARY not in repr(found)


FAULTS: tuple[dict[str, Any], ...] = (
    {"garbage": "html"},
    {"text": "half", "garbage": "half_json"},
    {"garbage": "empty"},
    {"garbage": "invalid_utf8"},
    {"text": "half", "cut": True},
    {"text": "half", "stall_s": 60},
    {"first_token_silence_s": 60},
    {"text": "half", "error": {"status": 529}},
    {"error": {"status": 500}},
    {"text": "more ", "endless": True},
    {"text": "whole"},
)


@pytest.mark.parametrize("provider", ["anthropic", "openai-chat", "openai-responses", "gemini"])
async def test_no_failure_keeps_a_connection(provider: str) -> None:
    """A connection that nobody lets go of is one fewer for ever; a pool has only so many."""
    short = Deadlines(first_token_seconds=0.3, stall_seconds=0.2, total_seconds=0.6)
    async with server_for(provider, {"rules": [{"match": "", "rounds": list(FAULTS)}]}) as server:
        opened: Any = open_at(server, provider)
        feed = [Message(message_id="m", role="user", parts=(Text("hello"),))]
        body = opened.build(feed, instructions="", tools=(), options={})
        for fault in FAULTS:
            ask = ModelCall(body=body, deadlines=short, newest_user_text="hello")
            try:
                async for _ in opened.stream(ask):
                    pass
            except ProviderFailed:
                pass
            client = getattr(opened._client, "_client", opened._client)
            busy = [c for c in client._transport._pool.connections if not (c.is_idle() or c.is_closed())]
            assert busy == [], fault
        assert len(server.requests) == len(FAULTS)
        await opened.close()
