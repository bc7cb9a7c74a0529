"""Resource provider: existing hosts, the secrets that a fleet of them shares, and archives.

`osgym:index:SshHost`: a machine; `osgym:index:FleetSecrets`: a token and a certificate authority, made once;
`osgym:index:ImageArchive`, `osgym:index:AgentArchive`: what hosts fetch (`osgym_infra.archives`).
A thin shell: what is done to hosts is in `work`, what inputs mean in `inputs`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from datetime import UTC, datetime
from typing import Any, TypeVar

from pulumi.provider.experimental import provider as api
from pulumi.provider.experimental.property_value import PropertyValue

from osgym_infra.errors import BadInput
from osgym_infra.hosts import tls
from osgym_infra.hosts.rollout import Rollout
from osgym_infra.hosts.spec import ObservedHost, as_outputs, bootstrap_digest
from osgym_infra.hosts.worker import Worker
from osgym_infra.links.access import LOCAL
from osgym_infra.links.errors import FleetHostError, Interrupted
from osgym_infra.links.link import OutputListener
from osgym_infra.resources import archives
from osgym_infra.resources import host_inputs as inputs
from osgym_infra.resources.values import Values, has_unknown, plain_all, wrapped
from osgym_protocol.version import __version__

NAME, VERSION = "osgym", __version__
HOST, SECRETS = "osgym:index:SshHost", "osgym:index:FleetSecrets"
TOKEN_BYTES = 32

T = TypeVar("T")
Say = Callable[[str, str], Awaitable[None]]
"""Tells the engine what is being done: URN, line."""


class PartialFailure(Exception):
    """A host was changed but does not match its inputs. The engine keeps it in the state, with the reason.

    Attributes:
        properties, inputs: Outputs and inputs for the state.
    """

    def __init__(self, resource_id: str, properties: Values, given: Values, cause: FleetHostError) -> None:
        self.resource_id, self.properties, self.inputs, self.cause = resource_id, properties, given, cause
        super().__init__(str(cause))


class OsgymProvider(api.Provider):
    """Provider that serves any number of calls at once; `cancel` stops those under way."""

    def __init__(self, files: Mapping[str, bytes], say: Say) -> None:
        self._files = files
        self._say = say
        self._running: set[asyncio.Task[Any]] = set()
        self._telling: set[asyncio.Task[None]] = set()
        self._cancelled = False
        self._rollout = Rollout()

    async def get_schema(self, request: api.GetSchemaRequest) -> api.GetSchemaResponse:
        """Return an empty schema: programs name our resources by their tokens, without a generated SDK."""
        return api.GetSchemaResponse(schema=json.dumps({"name": NAME, "version": VERSION}))

    async def check(self, request: api.CheckRequest) -> api.CheckResponse:
        """Refuse what can never work, by input and before anything is done."""
        if (kind := _kind(request.urn)) in archives.INPUTS:
            return await archives.check(kind, request)
        if kind not in (HOST, SECRETS):
            known = ", ".join((HOST, SECRETS, *archives.INPUTS))
            raise BadInput("type", f"{kind} is not a resource type of this provider", known)
        values = plain_all(request.new_inputs)
        if _kind(request.urn) == SECRETS:
            wrong = dict.fromkeys(values.keys() - {"name", "rotation"}, "unknown input")
        else:
            wrong = inputs.problems(values)
        failures = [api.CheckFailure(name, reason) for name, reason in sorted(wrong.items())]
        given = dict(request.new_inputs)
        if _kind(request.urn) == HOST:
            given[inputs.COMPUTED] = wrapped(bootstrap_digest(self._files))
        return api.CheckResponse(given, failures)

    async def diff(self, request: api.DiffRequest) -> api.DiffResponse:
        """Compare with the state: the inputs, and the last look at the host."""
        if _kind(request.urn) in archives.INPUTS:
            return archives.diff(request)
        old, new = plain_all(request.old_state), plain_all(request.new_inputs)
        if _kind(request.urn) == SECRETS:
            changed = [name for name in ("name", "rotation") if (old.get(name) or 0) != (new.get(name) or 0)]
            # Made anew in their place: `protect` keeps them from going, not from being renewed.
            return api.DiffResponse(bool(changed), [], diffs=changed)
        ignored = set(request.ignore_changes)
        found = {name: kind for name, kind in inputs.changes(old, new).items() if name not in ignored}
        drifted = inputs.drifted(old, new) + _renewals(old)
        detailed = {
            name: api.PropertyDiff(
                api.PropertyDiffKind.UPDATE_REPLACE
                if kind is inputs.Change.NEW_HOST
                else api.PropertyDiffKind.UPDATE,
                input_diff=True,
            )
            for name, kind in found.items()
        }
        detailed |= {
            name: api.PropertyDiff(api.PropertyDiffKind.UPDATE, input_diff=False) for name in drifted
        }
        replaces = [name for name, kind in found.items() if kind is inputs.Change.NEW_HOST]
        return api.DiffResponse(bool(detailed), replaces, diffs=list(detailed), detailed_diff=detailed)

    async def create(self, request: api.CreateRequest) -> api.CreateResponse:
        """Bring a host up; one that is up already is only looked at, step by step."""
        if (kind := _kind(request.urn)) in archives.INPUTS:
            return await archives.create(kind, request, self._made_here, self._sayer(request.urn))
        if kind == SECRETS:
            made = _new_secrets(request.properties, request.preview)
            return api.CreateResponse("" if request.preview else f"secrets-{secrets.token_hex(4)}", made)
        values = plain_all(request.properties)
        if request.preview:
            return api.CreateResponse(properties=_kept(request.properties))
        resource_id = inputs.host_id(values)
        properties = await self._bring_up(request.urn, resource_id, request.properties)
        return api.CreateResponse(resource_id, properties)

    async def update(self, request: api.UpdateRequest) -> api.UpdateResponse:
        """Bring the host to its new inputs, by the same steps as `create`."""
        if (kind := _kind(request.urn)) in archives.INPUTS:
            return await archives.update(kind, request, self._made_here, self._sayer(request.urn))
        if _kind(request.urn) == SECRETS:
            return api.UpdateResponse(_new_secrets(request.news, request.preview))
        if request.preview:
            return api.UpdateResponse(_kept(request.news))
        return api.UpdateResponse(await self._bring_up(request.urn, request.resource_id, request.news))

    async def read(self, request: api.ReadRequest) -> api.ReadResponse:
        """Look at a host; one that cannot be looked at keeps its state, with the problem."""
        if _kind(request.urn) in archives.INPUTS:
            return archives.read(request)
        given = request.inputs or request.properties
        values = plain_all(given)
        if _kind(request.urn) == SECRETS or inputs.problems(
            {k: v for k, v in values.items() if k in inputs.INPUTS}
        ):
            return api.ReadResponse(request.resource_id, request.properties, request.inputs)
        worker = self._worker(request.urn, values)
        found: ObservedHost | None = None
        try:
            found = await self._cancellable(worker.name, worker.inspect())
            problem = "; ".join(worker.drift(found))
        except Interrupted:
            raise
        except FleetHostError as error:
            problem = str(error)
        if problem:
            self._tell(request.urn, problem)
        kept = {name: value for name, value in given.items() if name in inputs.INPUTS}
        return api.ReadResponse(request.resource_id, _outputs(kept, found, problem), request.inputs)

    async def delete(self, request: api.DeleteRequest) -> None:
        """Take a host down and remove everything that `create` made."""
        if _kind(request.urn) in archives.INPUTS:
            archives.delete(request)
            return
        if _kind(request.urn) == SECRETS:
            return
        worker = self._worker(request.urn, plain_all(request.properties))
        try:
            await self._cancellable(worker.name, worker.tear_down())
        except FleetHostError as error:
            error.problem += (
                f"\nThe host stays in the stack until it is removed. If the machine no longer exists: "
                f"pulumi state delete '{request.urn}'"
            )
            raise

    async def cancel(self) -> None:
        """Stop all work; each call answers with what it left behind."""
        self._cancelled = True
        for task in self._running:
            task.cancel()

    async def _bring_up(self, urn: str, resource_id: str, given: Values) -> dict[str, PropertyValue]:
        worker = self._worker(urn, plain_all(given))
        try:
            return _outputs(given, await self._cancellable(worker.name, worker.bring_up()), "")
        except FleetHostError as error:
            if error.touched:
                raise PartialFailure(resource_id, _outputs(given, None, str(error)), given, error) from error
            raise

    def _worker(self, urn: str, values: Mapping[str, Any]) -> Worker:
        return Worker(inputs.spec_of(values), self._files, self._sayer(urn), rollout=self._rollout)

    def _sayer(self, urn: str) -> OutputListener:
        return lambda line: self._tell(urn, line)

    async def _made_here(self, work: Coroutine[Any, Any, T]) -> T:
        return await self._cancellable(LOCAL, work)

    def _tell(self, urn: str, line: str) -> None:
        """Tell the engine without waiting: work goes on whether it listens or not."""
        task = asyncio.ensure_future(self._tell_now(urn, line))
        self._telling.add(task)
        task.add_done_callback(self._telling.discard)

    async def _tell_now(self, urn: str, line: str) -> None:
        with contextlib.suppress(Exception):  # the engine may be gone, whatever gRPC says of that
            async with asyncio.timeout(5):
                await self._say(urn, line)

    async def _cancellable(self, host: str, work: Coroutine[Any, Any, T]) -> T:
        """Run work on a host so that `cancel` stops it; after `cancel` none begins.

        Raises:
            Interrupted: It was cancelled.
        """
        if self._cancelled:
            work.close()
            raise Interrupted(host, "interrupted before the host was changed")
        task = asyncio.create_task(work)
        self._running.add(task)
        try:
            return await task
        except asyncio.CancelledError:
            if not self._cancelled:
                raise
            raise Interrupted(host, "interrupted before the host was changed") from None
        finally:
            self._running.discard(task)


def _new_secrets(given: Values, preview: bool) -> dict[str, PropertyValue]:
    """Return a fleet's secrets with its inputs; a preview has none yet."""
    values = plain_all(given)
    if preview or has_unknown(values):
        return dict(given)
    ca = tls.make_ca(str(values.get("name", "")), datetime.now(UTC))
    made = {
        "token": wrapped(secrets.token_urlsafe(TOKEN_BYTES), secret=True),
        "caKey": wrapped(ca.key, secret=True),
        "caCertificate": wrapped(ca.certificate),
    }
    return {**given, **made}


def _kind(urn: str) -> str:
    """Return the type in a URN, without the types of its parents."""
    return urn.split("::")[2].rpartition("$")[2]


def _renewals(old: Mapping[str, Any]) -> list[str]:
    """Return the output `certificateEnds` when the certificate is about to expire."""
    end = old.get("certificateEnds")
    if not isinstance(end, str) or not end:
        return []
    ends = datetime.fromisoformat(end).replace(tzinfo=UTC)
    return ["certificateEnds"] if ends - datetime.now(UTC) < tls.RENEW_BEFORE else []


def _outputs(given: Values, found: ObservedHost | None, problem: str) -> dict[str, PropertyValue]:
    made = {name: wrapped(value) for name, value in as_outputs(found, problem).items()}
    return {**_kept(given), **made}


def _kept(given: Values) -> dict[str, PropertyValue]:
    """Return the inputs as outputs, with secrets marked again."""
    return {
        name: PropertyValue(value.value, is_secret=True) if name in inputs.SECRETS else value
        for name, value in given.items()
    }
