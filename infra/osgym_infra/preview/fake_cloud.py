"""A Pulumi plugin that makes nothing: it answers like a cloud, so that programs run without an account.

Inputs come back as the resource's properties, with what the real plugin would add (`CloudAnswers`, the
provider's module `preview`); ids are invented. It is named by path in a copy of `Pulumi.yaml` only (`run.py`,
the tests), never in the real one.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.metadata
import json
import sys
from collections.abc import Callable, Mapping

from pulumi import FileAsset
from pulumi.provider.experimental import provider, server
from pulumi.provider.experimental.property_value import Computed, PropertyValue
from pulumi.runtime.rpc import UNKNOWN

from osgym_infra.config.providers import Provider
from osgym_infra.preview.answers import CloudAnswers

LATER = PropertyValue(UNKNOWN)
"""What is known only when a resource exists, as the engine writes it: the SDK (3.272) cannot send its own
`PropertyValue.computed()`."""

Props = dict[str, PropertyValue]
Refusals = Callable[[str, Mapping[str, object], Callable[[str], Mapping[str, object]]], list[str]]
"""From a resource's type and inputs, and other resources' inputs by id, to sentences of refusal."""


class FakeCloud(provider.Provider):
    """A cloud that accepts every request.

    Args:
        refusals: Sentences with which a request is refused; tests pass the clouds' own rules.
    """

    def __init__(self, name: str, version: str, refusals: Refusals = lambda kind, inputs, made: []) -> None:
        self._schema = json.dumps({"name": name, "version": version})
        answers = Provider(name).part("preview").Answers()
        assert isinstance(answers, CloudAnswers)
        self._answers, self._refusals = answers, refusals

    async def get_schema(self, request: provider.GetSchemaRequest) -> provider.GetSchemaResponse:
        """Return name and version, which suffice for an installed SDK."""
        return provider.GetSchemaResponse(self._schema)

    async def check_config(self, request: provider.CheckRequest) -> provider.CheckResponse:
        return provider.CheckResponse(request.new_inputs, [])

    async def diff_config(self, request: provider.DiffRequest) -> provider.DiffResponse:
        return provider.DiffResponse(changes=False)

    async def configure(self, request: provider.ConfigureRequest) -> provider.ConfigureResponse:
        return provider.ConfigureResponse(
            accept_secrets=True, supports_preview=True, accept_resources=True, accept_outputs=True
        )

    async def check(self, request: provider.CheckRequest) -> provider.CheckResponse:
        """Refuse what the rules refuse; files become paths, since the SDK cannot read digests later."""
        inputs = {
            name: value.with_value(value.value.path) if isinstance(value.value, FileAsset) else value
            for name, value in request.new_inputs.items()
        }
        kind = request.type.rpartition("$")[2]
        self._answers.record(kind, _known(inputs))
        said = self._refusals(kind, _known(inputs), self._answers.inputs_of)
        return provider.CheckResponse(inputs, [provider.CheckFailure("", sentence) for sentence in said])

    async def diff(self, request: provider.DiffRequest) -> provider.DiffResponse:
        """Compare the inputs with the former ones; changes of some properties replace the resource."""
        old, new = request.old_state, request.new_inputs
        kind = _kind(request)
        self._answers.record(kind, _known(new), request.resource_id)
        ours = self._answers.outputs(kind, request.name, _known(new), "")
        changed = sorted(
            name
            for name in {*old, *new} - set(request.ignore_changes) - set(ours)
            if not name.startswith("__") and _plain(old.get(name)) != _plain(new.get(name))
        )
        fixed = changed if kind in self._answers.immutable else self._answers.replaced.get(kind, ())
        return provider.DiffResponse(
            changes=bool(changed), diffs=changed, replaces=[name for name in changed if name in fixed]
        )

    async def create(self, request: provider.CreateRequest) -> provider.CreateResponse:
        properties = self._made(_kind(request), request.name, request.properties, known=not request.preview)
        made_id = f"{request.name}-{_number(request.properties)}"
        if not request.preview:
            self._answers.record(_kind(request), _known(request.properties), made_id)
        return provider.CreateResponse("" if request.preview else made_id, properties)

    async def update(self, request: provider.UpdateRequest) -> provider.UpdateResponse:
        properties = self._made(_kind(request), request.name, request.news, known=not request.preview)
        if counted := self._answers.counted.get(_kind(request)):
            former = _plain(request.olds.get(counted))
            if not request.preview and isinstance(former, int | float):
                properties[counted] = PropertyValue(former + 1)
            else:
                properties[counted] = LATER
        return provider.UpdateResponse(properties)

    async def read(self, request: provider.ReadRequest) -> provider.ReadResponse:
        return provider.ReadResponse(
            resource_id=request.resource_id, properties=request.properties, inputs=request.inputs
        )

    async def delete(self, request: provider.DeleteRequest) -> None:
        return None

    async def invoke(self, request: provider.InvokeRequest) -> provider.InvokeResponse:
        """Answer a look-up."""
        asked = _known(request.args)
        found = self._answers.lookup(request.tok, asked)
        return provider.InvokeResponse(
            {**request.args, **{name: _valued(value) for name, value in found.items()}}
        )

    async def cancel(self) -> None:
        return None

    def _made(self, kind: str, name: str, inputs: Props, known: bool) -> Props:
        """Return the properties of a resource; outputs of the cloud are unknown in a preview."""
        added = self._answers.outputs(kind, name, _known(inputs), _number(inputs))
        made = {key: _sendable(value) for key, value in inputs.items()}
        made |= {key: _valued(value) if known else LATER for key, value in added.items()}
        secret = self._answers.secret
        return {key: value.with_secret(True) if key in secret else value for key, value in made.items()}


def _kind(request: provider.DiffRequest | provider.CreateRequest | provider.UpdateRequest) -> str:
    """Return the resource's own type, without those of its parents (`a$b`)."""
    return request.type.rpartition("$")[2]


def _number(inputs: Props) -> str:
    """Return a short digest of inputs."""
    data = json.dumps(_plain(inputs), sort_keys=True, default=str)
    return hashlib.sha256(data.encode()).hexdigest()[:8]


def _sendable(value: PropertyValue) -> PropertyValue:
    """Return a property whose unknown parts are `LATER`."""
    inner = value.value
    if isinstance(inner, Computed):
        return LATER.with_secret(value.is_secret)
    if isinstance(inner, Mapping):
        return value.with_value({key: _sendable(item) for key, item in inner.items()})
    if isinstance(inner, tuple):
        return value.with_value([_sendable(item) for item in inner])
    return value


def _known(inputs: Props) -> dict[str, object]:
    """Return inputs as plain values; unknown ones are `None`."""

    def known(value: object) -> object:
        if isinstance(value, dict):
            return {key: known(item) for key, item in value.items()}
        if isinstance(value, list):
            return [known(item) for item in value]
        return None if value == UNKNOWN else value

    return {key: known(_plain(value)) for key, value in inputs.items()}


def _valued(value: object) -> PropertyValue:
    """Return a plain value as a property."""
    if isinstance(value, Mapping):
        return PropertyValue({key: _valued(item) for key, item in value.items()})
    if isinstance(value, list):
        return PropertyValue([_valued(item) for item in value])
    if isinstance(value, int) and not isinstance(value, bool):
        return PropertyValue(float(value))
    assert value is None or isinstance(value, str | float | bool)
    return PropertyValue(value)


def _plain(value: object) -> object:
    """Return a property without wrappers, for comparisons."""
    if isinstance(value, PropertyValue):
        return _plain(value.value)
    if isinstance(value, Computed):
        return UNKNOWN
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items() if not key.startswith("__")}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def main(name: str, root: str, refusals: str) -> None:
    """Serve until the engine is done.

    Args:
        refusals: Module below it whose `refusals` says which requests are refused; empty: none is.
    """
    version = importlib.metadata.version(f"pulumi-{name}")
    cloud = FakeCloud(name, version)
    if refusals:
        sys.path.insert(0, root)
        cloud = FakeCloud(name, version, importlib.import_module(refusals).refusals)
    server.main(sys.argv[1:], version, cloud)
