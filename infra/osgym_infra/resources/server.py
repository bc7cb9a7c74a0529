"""Process of the provider: gRPC to the engine, and errors in a form that people can read."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import grpc.aio
from google.protobuf import any_pb2
from pulumi.provider.experimental.property_value import PropertyValue
from pulumi.provider.experimental.server import ProviderServicer
from pulumi.runtime._grpc_settings import _GRPC_CHANNEL_OPTIONS
from pulumi.runtime.proto import engine_pb2, engine_pb2_grpc, provider_pb2, provider_pb2_grpc, status_pb2

from osgym_infra.errors import OsgymInfraError
from osgym_infra.fleet.bootstrap import bootstrap_files
from osgym_infra.resources.provider import VERSION, OsgymProvider, PartialFailure

WARNING = "warning: "
"""A line that begins so stays on the screen."""

Call = Callable[[Any, Any], Awaitable[Any]]


class Servicer(ProviderServicer):
    """Servicer of the SDK whose errors are messages without a traceback.

    A host that was left half configured is answered as `ErrorResourceInitFailed`: so it stands in the state,
    the next `up` goes on with it, and `destroy` takes it down.
    """

    async def Create(self, request: Any, context: Any) -> Any:
        return await _answered(super().Create, request, context)

    async def Update(self, request: Any, context: Any) -> Any:
        return await _answered(super().Update, request, context)

    async def Read(self, request: Any, context: Any) -> Any:
        return await _answered(super().Read, request, context)

    async def Delete(self, request: Any, context: Any) -> Any:
        return await _answered(super().Delete, request, context)


async def _answered(call: Call, request: Any, context: Any) -> Any:
    try:
        return await call(request, context)
    except Exception as error:
        # The SDK raises anew, with a text; what was raised is its context.
        cause = error.__context__
        if isinstance(cause, PartialFailure):
            context.set_trailing_metadata((("grpc-status-details-bin", partial_failure_status(cause)),))
        if isinstance(cause, PartialFailure | OsgymInfraError):
            await context.abort(grpc.StatusCode.UNKNOWN, str(cause))
        raise


def partial_failure_status(cause: PartialFailure) -> bytes:
    """Return the status that makes the engine keep the resource."""
    detail = provider_pb2.ErrorResourceInitFailed(id=cause.resource_id, reasons=[str(cause)])
    detail.properties.CopyFrom(PropertyValue.marshal_map(dict(cause.properties)))
    detail.inputs.CopyFrom(PropertyValue.marshal_map(dict(cause.inputs)))
    packed = any_pb2.Any()
    packed.Pack(detail)
    status = status_pb2.Status(code=grpc.StatusCode.UNKNOWN.value[0], message=str(cause))
    status.details.append(packed)
    return bytes(status.SerializeToString())


async def serve(engine_address: str, arguments: list[str]) -> None:
    async with grpc.aio.insecure_channel(engine_address, options=_GRPC_CHANNEL_OPTIONS) as channel:
        engine = engine_pb2_grpc.EngineStub(channel)

        async def say(urn: str, line: str) -> None:
            warns = line.startswith(WARNING)
            severity = engine_pb2.WARNING if warns else engine_pb2.INFO
            # Ephemeral: the line is replaced by the next one, as the resource's progress.
            await engine.Log(
                engine_pb2.LogRequest(
                    severity=severity, message=line.removeprefix(WARNING), urn=urn, ephemeral=not warns
                )
            )

        server = grpc.aio.server(options=_GRPC_CHANNEL_OPTIONS)
        provider = OsgymProvider(bootstrap_files(), say)
        servicer = Servicer(arguments, VERSION, provider, engine_address=engine_address)
        provider_pb2_grpc.add_ResourceProviderServicer_to_server(servicer, server)
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        sys.stdout.write(f"{port}\n")
        sys.stdout.flush()
        try:
            await server.wait_for_termination()
        finally:
            await server.stop(grace=None)


def main(arguments: list[str]) -> None:
    addresses = [argument for argument in arguments if not argument.startswith("-")]
    if not addresses:
        raise SystemExit("usage: python infra/provider ENGINE_ADDRESS (the engine does this)")
    # Ctrl-C in a terminal reaches us too; the engine tells us in its own order, by `Cancel`. A handler, not
    # SIG_IGN: commands that we start would inherit that.
    signal.signal(signal.SIGINT, lambda *_: None)
    asyncio.run(serve(addresses[0], arguments))
