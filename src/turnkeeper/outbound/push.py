"""A web push message: sealed for one browser (RFC 8291), signed as ours (RFC 8292), sent through the guarded client.

The address is one that a browser supplied, so it is reached as any such address. Written on `cryptography`, which
is there already: the well-known libraries bring HTTP clients of their own, which know no guard. The test holds the
sealing to the example of RFC 8291, octet by octet.
"""

from __future__ import annotations

import base64
import json
import os
from urllib.parse import urlsplit

import msgspec
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from turnkeeper.errors import BadInput
from turnkeeper.outbound.addresses import Bounds, Reach

RECORD_BYTES = 4096
"""The one record that a message is; push services take no more."""
PAYLOAD_BYTES_MAX = 3_000
KEPT_SECONDS = 86_400
"""How long a push service keeps a message for a browser that is away."""
SIGNED_SECONDS = 43_200
"""How long a signature is good; at most a day (RFC 8292)."""
ENDPOINT_CHARS_MAX = 2_000
CURVE = ec.SECP256R1()


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """Where one browser is told things, and the keys that it gave: `p256dh` (its public key), `auth` (16 bytes)."""

    endpoint: str
    p256dh: str
    auth: str

    def check(self) -> None:
        """Raises BadInput for what no browser would give."""
        parts = urlsplit(self.endpoint)
        if (
            parts.scheme not in ("https", "http")
            or not parts.hostname
            or len(self.endpoint) > ENDPOINT_CHARS_MAX
        ):
            raise BadInput(why="endpoint is no address of a push service")
        if parts.scheme == "http" and parts.hostname not in ("127.0.0.1", "::1", "localhost"):
            raise BadInput(why="endpoint must be https")
        try:
            ec.EllipticCurvePublicKey.from_encoded_point(CURVE, unpacked(self.p256dh))
            good = len(unpacked(self.auth)) == 16
        except (ValueError, UnsupportedAlgorithm):
            good = False
        if not good:
            raise BadInput(why="the keys are not those of a push subscription")


def packed(data: bytes) -> str:
    """base64url without padding."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def unpacked(text: str) -> bytes:
    """The bytes of base64url without padding. Raises ValueError."""
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def point(key: ec.EllipticCurvePublicKey) -> bytes:
    """A public key as it is sent."""
    return key.public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)


def seal(payload: bytes, to: Address, own: ec.EllipticCurvePrivateKey, salt: bytes) -> bytes:
    """The body of the request: `payload` sealed for the browser behind `to`. `own` and `salt` serve one message."""
    theirs = unpacked(to.p256dh)
    shared = own.exchange(ec.ECDH(), ec.EllipticCurvePublicKey.from_encoded_point(CURVE, theirs))
    ours = point(own.public_key())

    def derived(secret: bytes, key_salt: bytes, info: bytes, length: int) -> bytes:
        return HKDF(algorithm=SHA256(), length=length, salt=key_salt, info=info).derive(secret)

    secret = derived(shared, unpacked(to.auth), b"WebPush: info\x00" + theirs + ours, 32)
    key = derived(secret, salt, b"Content-Encoding: aes128gcm\x00", 16)
    nonce = derived(secret, salt, b"Content-Encoding: nonce\x00", 12)
    head = salt + RECORD_BYTES.to_bytes(4, "big") + bytes([len(ours)]) + ours
    return head + AESGCM(key).encrypt(nonce, payload + b"\x02", None)


def signature(endpoint: str, key: ec.EllipticCurvePrivateKey, *, contact: str, now: float) -> str:
    """The Authorization header that says who sends (VAPID)."""
    parts = urlsplit(endpoint)
    claims = {"aud": f"{parts.scheme}://{parts.netloc}", "exp": int(now) + SIGNED_SECONDS, "sub": contact}
    head = packed(json.dumps({"typ": "JWT", "alg": "ES256"}).encode())
    signed = f"{head}.{packed(json.dumps(claims).encode())}"
    r, s = decode_dss_signature(key.sign(signed.encode(), ec.ECDSA(SHA256())))
    token = f"{signed}.{packed(r.to_bytes(32, 'big') + s.to_bytes(32, 'big'))}"
    return f"vapid t={token}, k={packed(point(key.public_key()))}"


async def push(
    payload: bytes,
    to: Address,
    key: ec.EllipticCurvePrivateKey,
    *,
    topic: str,
    contact: str,
    now: float,
    reach: Reach,
    bounds: Bounds,
) -> int:
    """Send it; the push service's status. `topic` (at most 32 letters): a newer message takes an unseen one's place.

    Raises httpx2's errors and AddressRefused.
    """
    from turnkeeper.outbound.client import open_guarded

    assert len(payload) <= PAYLOAD_BYTES_MAX
    body = seal(payload, to, ec.generate_private_key(CURVE), os.urandom(16))
    headers = {
        "authorization": signature(to.endpoint, key, contact=contact, now=now),
        "content-encoding": "aes128gcm",
        "content-type": "application/octet-stream",
        "ttl": str(KEPT_SECONDS),
        "urgency": "normal",
        "topic": topic,
    }
    async with open_guarded(reach, bounds) as client:
        answer = await client.post(to.endpoint, content=body, headers=headers)
    return answer.status_code
