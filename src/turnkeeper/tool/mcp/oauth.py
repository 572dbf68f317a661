"""Signing a person in at a server: OAuth with PKCE, in two halves with nothing but the vault in between.

`begin` finds out who may sign in for the server, registers us there if nobody did, and gives the address to
send the browser to. `finish` takes what the browser brought back. Between them anything may happen, a restart
too: what must be remembered is sealed in the vault, under the hash of the state. A state works once, for a
short time, and only in the browser that began it. Each half uses a throw-away client of its own, so that
nothing of it touches the connections on which calls run.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import hmac
import re
import secrets
from collections.abc import Mapping
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from turnkeeper.errors import ConnectFailed, ConnectInvalid, TurnkeeperError
from turnkeeper.outbound import Bounds, Reach
from turnkeeper.port.clock import Clock
from turnkeeper.tool.mcp.config import McpServer
from turnkeeper.tool.mcp.grants import Client, Grant, Vault

if TYPE_CHECKING:
    import httpx2

FLOW_SECONDS: Final = 900.0
"""How long a sign-in that was begun can be finished."""
MARK_CHARS: Final = 12
"""Characters of a state that name the browser's cookie, so that two sign-ins in one browser keep apart."""
CHALLENGE_CHARS_MAX: Final = 4_000
"""Most characters that are kept of what a server says when it refuses."""
STEP_SECONDS: Final = 40.0
"""Longest time for everything that one half asks of others."""


_TOKEN: Final = re.compile(r"[\x21-\x7e]+")
"""What may stand after `Bearer`: visible ASCII without spaces."""


class Flow(msgspec.Struct, frozen=True, kw_only=True):
    """A sign-in under way."""

    server: str
    person: str
    browser: str
    """SHA-256 of the secret that the browser which began it holds as a cookie."""
    verifier: str
    client: Client
    token_endpoint: str
    revocation_endpoint: str | None
    issuer: str
    """Who must answer (RFC 9207); "" where nobody was named."""
    issuer_is_told: bool
    redirect_uri: str
    resource: str
    scope: str | None
    until: float


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """What a server said when it refused somebody, and where it was then."""

    place: str
    challenge: str


class Begun(msgspec.Struct, frozen=True, kw_only=True):
    """Where to send the browser, and the secret it is to keep."""

    url: str
    browser: str
    mark: str
    """The beginning of the state."""


class Finished(msgspec.Struct, frozen=True, kw_only=True):
    """How a sign-in ended. outcome: connected | refused"""

    server: str
    person: str
    outcome: str
    grant: Grant | None = None


class OAuth:
    """Both halves, the refresh, and the revocation."""

    def __init__(
        self,
        vault: Vault,
        clock: Clock,
        *,
        reach: Reach,
        bounds: Bounds,
        secrets: Mapping[str, str],
    ) -> None:
        self._vault = vault
        self._clock = clock
        self._reach = reach
        self._bounds = bounds
        self._secrets = secrets
        self._finishing: set[str] = set()
        """The states that are being spent."""

    def _open(self) -> httpx2.AsyncClient:
        """A throw-away client."""
        from turnkeeper.outbound.client import open_guarded

        return open_guarded(self._reach, self._bounds)

    async def remember_challenge(self, server: McpServer, person: str, challenge: str) -> None:
        """What a server said when it refused a request: who signs people in for it, and what it wants them to ask for.

        Kept, with where it was said: the sign-in may come after a restart.
        """
        if challenge:
            said = Said(place=server.place, challenge=challenge[:CHALLENGE_CHARS_MAX])
            await self._vault.put(_challenge_name(server.name, person), msgspec.json.encode(said))

    async def _challenge(self, http: httpx2.AsyncClient, server: McpServer, person: str) -> str:
        """What the server said when it last refused this person, else what it says to a stranger now."""
        assert server.url is not None
        kept = await self._vault.get(_challenge_name(server.name, person))
        with contextlib.suppress(msgspec.DecodeError, msgspec.ValidationError):
            said = None if not kept else msgspec.json.decode(kept, type=Said)
            if said is not None and said.place == server.place:
                return said.challenge
        return await _ask_for_challenge(http, server.url)

    # -- the first half

    async def begin(
        self, server: McpServer, person: str, redirect_uri: str, held: str | None = None
    ) -> Begun:
        """Begin a sign-in. `held` is the scope that the person has already. Raises ConnectFailed."""
        try:
            async with asyncio.timeout(STEP_SECONDS), self._open() as http:
                return await self._begin(http, server, person, redirect_uri, held)
        except TimeoutError:
            raise ConnectFailed(server=server.name, why="it took too long") from None
        except _troubles() as error:
            raise _failed(server.name, error) from None

    async def _begin(
        self, http: httpx2.AsyncClient, server: McpServer, person: str, redirect_uri: str, held: str | None
    ) -> Begun:
        from mcp.client.auth.utils import get_client_metadata_scopes, union_scopes

        assert server.url is not None
        challenge = await self._challenge(http, server, person)
        resource = await _find_resource(http, server.url, challenge)
        metadata = await _find_authority(http, server.url, resource)
        self._check_endpoints(metadata)
        if "S256" not in (metadata.code_challenge_methods_supported or ()):
            raise ConnectFailed(server=server.name, why="who signs in for it does not offer PKCE (S256)")
        wanted = _field(challenge, "scope")
        if wanted is not None:
            wanted = union_scopes(held, wanted)  # a server names what was missing: what there was is kept
        scope = " ".join(server.scopes) or get_client_metadata_scopes(
            wanted, resource, metadata, ["authorization_code", "refresh_token"]
        )
        client = await self._client(http, server, metadata, redirect_uri, scope)
        verifier, state, browser = (secrets.token_urlsafe(48) for _ in range(3))
        issuer_is_told = bool(metadata.authorization_response_iss_parameter_supported)
        flow = Flow(
            server=server.name,
            person=person,
            browser=_hash(browser),
            verifier=verifier,
            client=client,
            token_endpoint=str(metadata.token_endpoint),
            revocation_endpoint=None
            if metadata.revocation_endpoint is None
            else str(metadata.revocation_endpoint),
            issuer=str(metadata.issuer),
            issuer_is_told=issuer_is_told,
            redirect_uri=redirect_uri,
            resource=_resource_of(server.url, resource),
            scope=scope,
            until=self._clock.now() + FLOW_SECONDS,
        )
        await self._vault.put(_flow_name(state), msgspec.json.encode(flow))
        asked = {
            "response_type": "code",
            "client_id": client.client_id,
            "redirect_uri": redirect_uri,
            "state": state,
            "code_challenge": _s256(verifier),
            "code_challenge_method": "S256",
            "resource": flow.resource,
            **({"scope": scope} if scope else {}),
        }
        endpoint = str(metadata.authorization_endpoint)
        joint = "&" if "?" in endpoint else "?"
        return Begun(
            url=f"{endpoint}{joint}{urlencode(asked, quote_via=quote)}",
            browser=browser,
            mark=state[:MARK_CHARS],
        )

    def _check_endpoints(self, metadata: Any) -> None:
        """Every endpoint speaks https (http: on this machine only), and no browser is sent into a private network."""
        for endpoint in (
            metadata.authorization_endpoint,
            metadata.token_endpoint,
            metadata.registration_endpoint,
            metadata.revocation_endpoint,
        ):
            if endpoint is None:
                continue
            parts = urlsplit(str(endpoint))
            host = parts.hostname or ""
            try:
                address = ip_address(host)
            except ValueError:
                here = host == "localhost"
            else:
                here = address.is_loopback
                why = self._reach.refusal(host)
                if why is not None:
                    raise ConnectFailed(f"A sign-in there would go to {host}, and {why}.")
            if parts.scheme != "https" and not (parts.scheme == "http" and here):
                raise ConnectFailed(f"A sign-in there would not be encrypted ({parts.scheme}://{host}).")

    async def _client(
        self,
        http: httpx2.AsyncClient,
        server: McpServer,
        metadata: Any,
        redirect_uri: str,
        scope: str | None,
    ) -> Client:
        """Us, as this authority knows us: as configured, as registered before, or registered now."""
        issuer = str(metadata.issuer)
        if server.client_id is not None:
            secret = None
            if server.client_secret_env is not None:
                secret = self._secrets.get(server.client_secret_env)
            methods = metadata.token_endpoint_auth_methods_supported or ["client_secret_basic"]
            method = (
                "none" if secret is None else _method(methods, ("client_secret_basic", "client_secret_post"))
            )
            return Client(
                client_id=server.client_id,
                client_secret=secret,
                method=method,
                issuer=issuer,
                redirect_uri=redirect_uri,
            )
        name = f"mcp.client:{server.name}"
        kept = await self._vault.get(name)
        if kept:
            client = msgspec.json.decode(kept, type=Client)
            may_ask = set((scope or "").split()) <= set((client.scope or "").split())
            if (client.issuer, client.redirect_uri) == (issuer, redirect_uri) and may_ask:
                return client
        client = await _register(http, metadata, redirect_uri, scope)
        await self._vault.put(name, msgspec.json.encode(client))
        return client

    # -- the second half

    async def finish(
        self,
        *,
        state: str,
        browser: str | None,
        code: str | None,
        issuer: str | None,
        error: str | None,
    ) -> Finished:
        """Finish a sign-in with what a browser brought. Raises ConnectInvalid, ConnectFailed; then nothing is kept."""
        flow = await self._spend(_flow_name(state), browser)
        told = issuer is not None or flow.issuer_is_told
        if told and issuer != flow.issuer:
            raise ConnectInvalid(why="the answer does not come from whom it was asked of (issuer)")
        if error == "access_denied":
            return Finished(server=flow.server, person=flow.person, outcome="refused")
        if error is not None:
            # Nobody said no: whoever signs people in could not do it, or not just now.
            raise ConnectFailed(server=flow.server, why=f"the sign-in failed there ({error[:100]})")
        if not code:
            raise ConnectInvalid(why="the answer holds neither a code nor a refusal")
        answer = await self._ask_for_token(
            flow.client,
            flow.token_endpoint,
            flow.server,
            {
                "grant_type": "authorization_code",
                "code": code,
                "redirect_uri": flow.redirect_uri,
                "code_verifier": flow.verifier,
                "resource": flow.resource,
            },
        )
        grant = Grant(
            server=flow.server,
            person=flow.person,
            generation=secrets.token_hex(8),
            granted_at=self._clock.now(),
            client=flow.client,
            token_endpoint=flow.token_endpoint,
            revocation_endpoint=flow.revocation_endpoint,
            resource=flow.resource,
            scope=flow.scope,
        )
        return Finished(
            server=flow.server, person=flow.person, outcome="connected", grant=self._given(grant, answer)
        )

    async def _spend(self, name: str, browser: str | None) -> Flow:
        """The sign-in of that name, which nobody can finish after this. Raises ConnectInvalid."""
        spent = ConnectInvalid(why="it is unknown, used already, or too old")
        if name in self._finishing:
            raise spent
        self._finishing.add(name)
        try:
            kept = await self._vault.get(name)
            flow = None if not kept else msgspec.json.decode(kept, type=Flow)
            if flow is None or flow.until <= self._clock.now():
                raise spent
            if browser is None or not hmac.compare_digest(_hash(browser), flow.browser):
                # Another browser, and so perhaps another person: the one that began it may still finish it.
                raise ConnectInvalid(why="it was begun in another browser")
            await self._vault.put(name, None)
        finally:
            self._finishing.discard(name)
        return flow

    def _given(self, grant: Grant, answer: dict[str, Any]) -> Grant:
        seconds = answer.get("expires_in")
        timed = isinstance(seconds, int | float) and not isinstance(seconds, bool) and seconds > 0
        return msgspec.structs.replace(
            grant,
            access_token=answer["access_token"],
            refresh_token=_text(answer, "refresh_token") or grant.refresh_token,
            expires_at=self._clock.now() + float(seconds) if timed and seconds is not None else None,
            scope=_text(answer, "scope") or grant.scope,
            revoked=False,
        )

    async def refresh(self, grant: Grant) -> Grant | None:
        """A fresh grant; None if it is refused for good. Raises ConnectFailed for what may pass."""
        asked = {"grant_type": "refresh_token", "refresh_token": grant.refresh_token or ""}
        if grant.resource:
            asked["resource"] = grant.resource
        try:
            answer = await self._ask_for_token(grant.client, grant.token_endpoint, grant.server, asked)
        except ConnectInvalid:
            return None
        return self._given(grant, answer)

    async def revoke(self, grant: Grant) -> None:
        """Tell the authority that the grant is not needed any more, if it wants to be told. Raises nothing."""
        if grant.revocation_endpoint is None or grant.revoked:
            return
        try:
            async with asyncio.timeout(STEP_SECONDS), self._open() as http:
                data = {"token": grant.refresh_token or grant.access_token}
                headers = _authenticate(grant.client, data)
                await http.post(grant.revocation_endpoint, data=data, headers=headers)
        except _troubles():
            return

    async def _ask_for_token(
        self, client: Client, endpoint: str, server: str, data: dict[str, str]
    ) -> dict[str, Any]:
        """The token endpoint's answer. Raises ConnectInvalid if it refuses, ConnectFailed if it cannot say."""
        try:
            async with asyncio.timeout(STEP_SECONDS), self._open() as http:
                headers = _authenticate(client, data)
                response = await http.post(endpoint, data=data, headers=headers)
                answer = _json(response.content)
        except TimeoutError:
            raise ConnectFailed(server=server, why="it took too long") from None
        except _troubles() as error:
            raise _failed(server, error) from None
        if response.status_code in (400, 401, 403):
            said = answer.get("error")
            raise ConnectInvalid(
                why=f"it was refused ({said[:100] if isinstance(said, str) else response.status_code})"
            )
        token = answer.get("access_token")
        kind = answer.get("token_type", "bearer")
        if response.status_code != 200 or not isinstance(token, str) or not token:
            raise ConnectFailed(server=server, why=f"it gave no token (status {response.status_code})")
        if not _TOKEN.fullmatch(token):
            raise ConnectFailed(server=server, why="it gave a token that no header can carry")
        if not isinstance(kind, str) or kind.lower() != "bearer":
            raise ConnectFailed(server=server, why="it gave a token of a kind that is not spoken here")
        return answer


# --- finding out


async def _ask_for_challenge(http: httpx2.AsyncClient, url: str) -> str:
    """What the server says to who is not signed in."""
    probe = {"jsonrpc": "2.0", "id": 0, "method": "ping"}
    accepts = {"accept": "application/json, text/event-stream"}
    async with http.stream("POST", url, json=probe, headers=accepts) as response:
        return str(response.headers.get("www-authenticate", ""))


def _field(challenge: str, name: str) -> str | None:
    """A field of a WWW-Authenticate header."""
    found = re.search(rf'\b{name}=(?:"([^"]*)"|([^\s,]+))', challenge)
    return None if found is None else found[1] or found[2]


async def _find_resource(http: httpx2.AsyncClient, url: str, challenge: str) -> Any:
    """The server's protected resource metadata (RFC 9728), or None if it publishes none."""
    from mcp.client.auth.utils import build_protected_resource_metadata_discovery_urls
    from mcp.shared.auth import ProtectedResourceMetadata
    from mcp.shared.auth_utils import check_resource_allowed, resource_url_from_server_url
    from pydantic import ValidationError

    for place in build_protected_resource_metadata_discovery_urls(
        _field(challenge, "resource_metadata"), url
    ):
        response = await http.get(place, headers={"accept": "application/json"})
        if response.status_code >= 500:
            raise ConnectFailed(
                f"What the server publishes about its sign-in cannot be read ({response.status_code})."
            )
        if response.status_code != 200:
            continue
        try:
            found = ProtectedResourceMetadata.model_validate_json(response.content)
        except ValidationError:
            continue
        wanted = resource_url_from_server_url(url)
        if not check_resource_allowed(requested_resource=wanted, configured_resource=str(found.resource)):
            raise ConnectFailed("What the server publishes about its sign-in is about another server.")
        return found
    return None


async def _find_authority(http: httpx2.AsyncClient, url: str, resource: Any) -> Any:
    """The metadata of who signs people in (RFC 8414)."""
    from mcp.client.auth.utils import build_oauth_authorization_server_metadata_discovery_urls, issuers_match
    from mcp.shared.auth import OAuthMetadata
    from pydantic import ValidationError

    named = None if resource is None else str(resource.authorization_servers[0])
    parts = urlsplit(url)
    expected = named or f"{parts.scheme}://{parts.netloc}"
    for place in build_oauth_authorization_server_metadata_discovery_urls(named, url):
        response = await http.get(place, headers={"accept": "application/json"})
        if response.status_code != 200:
            continue
        try:
            found = OAuthMetadata.model_validate_json(response.content)
        except ValidationError:
            continue
        if not issuers_match(str(found.issuer), expected):
            raise ConnectFailed(
                "Who signs in for the server calls itself otherwise than the server does (issuer)."
            )
        return found
    raise ConnectFailed("The server does not say who signs people in for it.")


def _resource_of(url: str, resource: Any) -> str:
    from mcp.shared.auth_utils import resource_url_from_server_url

    return str(resource.resource) if resource is not None else str(resource_url_from_server_url(url))


async def _register(http: httpx2.AsyncClient, metadata: Any, redirect_uri: str, scope: str | None) -> Client:
    """Register us (RFC 7591)."""
    if metadata.registration_endpoint is None:
        raise ConnectFailed(
            "Who signs in for the server registers nobody: give it a client_id in the agents file."
        )
    methods = metadata.token_endpoint_auth_methods_supported or ["client_secret_basic"]
    method = _method(methods, ("none", "client_secret_post", "client_secret_basic"))
    asked = {
        "client_name": "Turnkeeper",
        "redirect_uris": [redirect_uri],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": method,
        **({"scope": scope} if scope else {}),
    }
    response = await http.post(str(metadata.registration_endpoint), json=asked)
    answer = _json(response.content)
    client_id, secret = answer.get("client_id"), answer.get("client_secret")
    if response.status_code not in (200, 201) or not isinstance(client_id, str) or not client_id:
        raise ConnectFailed(f"Registering there failed (status {response.status_code}).")
    given = answer.get("token_endpoint_auth_method") or method
    if given not in ("none", "client_secret_basic", "client_secret_post"):
        raise ConnectFailed("It was registered with a way of signing in that is not spoken here.")
    if given != "none" and not isinstance(secret, str):
        raise ConnectFailed("It was registered with a secret, and none was given.")
    return Client(
        client_id=client_id,
        client_secret=secret if isinstance(secret, str) and given != "none" else None,
        method=given,
        issuer=str(metadata.issuer),
        redirect_uri=redirect_uri,
        scope=scope,
    )


def _method(offered: list[str], liked: tuple[str, ...]) -> str:
    return next((one for one in liked if one in offered), liked[-1])


def _authenticate(client: Client, data: dict[str, str]) -> dict[str, str]:
    """Put who we are into the form `data`, or into the headers that are returned."""
    headers = {"accept": "application/json"}
    data["client_id"] = client.client_id
    if client.method == "client_secret_basic" and client.client_secret is not None:
        pair = f"{quote(client.client_id, safe='')}:{quote(client.client_secret, safe='')}"
        headers["authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        return headers
    if client.method == "client_secret_post" and client.client_secret is not None:
        data["client_secret"] = client.client_secret
    return headers


# --- small things


def _troubles() -> tuple[type[Exception], ...]:
    """What may come of speaking to somebody whom we do not trust."""
    import httpx2

    return TimeoutError, TurnkeeperError, httpx2.HTTPError, httpx2.InvalidURL, ValueError, RecursionError


def _json(data: bytes) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _text(answer: dict[str, Any], name: str) -> str | None:
    """A member that is a string; what is none counts as not given."""
    value = answer.get(name)
    return value if isinstance(value, str) else None


def _failed(server: str, error: Exception) -> ConnectFailed:
    if isinstance(error, ConnectFailed):
        return error
    words = error.sentence if isinstance(error, TurnkeeperError) else f"{type(error).__name__}: {error}"
    return ConnectFailed(server=server, why=words[:500])


def _hash(value: str) -> str:
    return hashlib.sha256(value.encode("utf-8", "surrogatepass")).hexdigest()


def _flow_name(state: str) -> str:
    return f"mcp.flow:{_hash(state)}"


def _challenge_name(server: str, person: str) -> str:
    return f"mcp.challenge:{server}:{person}"


def _s256(verifier: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()
