"""A push service on loopback, and the browser behind it: takes what is pushed, and opens it as a browser would."""

from __future__ import annotations

import asyncio
import base64
import json
import os
from types import TracebackType
from typing import Any, Self

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

CURVE = ec.SECP256R1()


def unpacked(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def packed(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


class PushService:
    """Answers `status` and keeps what came: (headers, body)."""

    def __init__(self) -> None:
        self.status = 201
        self.came: list[tuple[dict[str, str], bytes]] = []
        self._key = ec.generate_private_key(CURVE)
        self._auth = os.urandom(16)
        self.url = ""

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:])}
        body = await reader.readexactly(int(headers["content-length"]))
        self.came.append(({**headers, ":path": head[0].split()[1]}, body))
        writer.write(f"HTTP/1.1 {self.status} x\r\ncontent-length: 0\r\nconnection: close\r\n\r\n".encode())
        await writer.drain()
        writer.close()

    def subscription(self, name: str = "one") -> dict[str, Any]:
        """What a browser would give."""
        point = self._key.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
        keys = {"p256dh": packed(point), "auth": packed(self._auth)}
        return {"endpoint": f"{self.url}/push/{name}", "keys": keys}

    def opened(self, body: bytes) -> Any:
        """The message, opened with the browser's keys (RFC 8188, 8291). Raises InvalidTag."""
        salt, length = body[:16], body[20]
        sender, sealed = body[21 : 21 + length], body[21 + length :]
        shared = self._key.exchange(ec.ECDH(), ec.EllipticCurvePublicKey.from_encoded_point(CURVE, sender))
        own = self._key.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)

        def derived(secret: bytes, key_salt: bytes, info: bytes, size: int) -> bytes:
            return HKDF(algorithm=SHA256(), length=size, salt=key_salt, info=info).derive(secret)

        secret = derived(shared, self._auth, b"WebPush: info\0" + own + sender, 32)
        key = derived(secret, salt, b"Content-Encoding: aes128gcm\0", 16)
        nonce = derived(secret, salt, b"Content-Encoding: nonce\0", 12)
        plain = AESGCM(key).decrypt(nonce, sealed, None)
        assert plain[-1:] == b"\x02"
        return json.loads(plain[:-1])

    def signer(self, authorization: str, public_key: str) -> dict[str, Any]:
        """The claims of a VAPID header that `public_key` signed. Raises InvalidSignature."""
        token, key = authorization.removeprefix("vapid t=").split(", k=")
        assert key == public_key
        signed, _, mark = token.rpartition(".")
        raw = unpacked(mark)
        der = encode_dss_signature(int.from_bytes(raw[:32], "big"), int.from_bytes(raw[32:], "big"))
        public = ec.EllipticCurvePublicKey.from_encoded_point(CURVE, unpacked(public_key))
        public.verify(der, signed.encode(), ec.ECDSA(SHA256()))
        claims: dict[str, Any] = json.loads(unpacked(signed.split(".")[1]))
        return claims
