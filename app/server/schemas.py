"""Schemas as resources: put, looked at, listed, kept for a while or for good, and deleted."""

from __future__ import annotations

import base64
import datetime
import math
import re
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ValidationError
from starlette.responses import Response

from app.server.core.pml_requests import PUT_IT, pin, pml_faults, prepared_schema, unknown_schema
from app.server.core.schema_files import FullError, SchemaFiles
from app.server.core.service import LONG_PML, Service
from app.server.core.stored_schema import Head, KeptSchema, Terms
from app.server.http.bodies import Strict, bytes_of, media_type, object_of
from app.server.http.errors import INVALID, WRONG_TYPE, ApiError, fault_of_pml
from app.server.http.streams import gone
from app.server.http.truncate import shown
from app.server.http.validation_errors import misfit
from engine import Engine
from engine.base.events import Listener
from engine.files.text_files import TextFileError, decode
from engine.pml import PromptError, Schema
from engine.pml.diagnostics.diagnostic import NOWHERE
from engine.prepared import PreparedSchema

PATH = "/v1/prompt_cache/schemas"
XML = frozenset({"application/xml", "text/xml"})
USUAL_PAGE, LARGEST_PAGE = 50, 1000
NOTHING_DELETED = f"Nothing is deleted; GET {PATH} lists those that there are."
NOTHING_CHANGED = f"Nothing is changed; put it first, with PUT {PATH}/NAME."
GONE_MEANWHILE = "It was deleted, or its time was over, meanwhile; put it again."
LONGEST_SECONDS = 10 * 365 * 86400.0
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
Body = TypeVar("Body", bound=BaseModel)
Made = TypeVar("Made")
_TTL = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,9})?)([smhd]?)")


class TermsBody(Strict):
    """How long a schema stays. Each field may be left out, and stays as it is then."""

    ttl: str | float | None = None
    expires_at: str | float | None = None
    pinned: bool | None = None


class PutBody(TermsBody):
    """A schema, how long it stays, and whether it is encoded at once."""

    pml: str
    encode: bool = False


def routes(service: Service) -> APIRouter:
    """Returns the endpoints."""
    router = APIRouter()

    def owner_of(request: Request) -> str:
        return service.salt(None, request.state.client)

    async def looked(request: Request, do: Callable[[], Made], size: int = 0) -> Made:
        """Does something once what is over is gone, on a thread that no answer needs."""
        engine, files = service.engine, service.schemas

        def look() -> Made:
            _sweep(engine, files)
            return do()

        return await service.look(look, request.state.client, gone(request), long=size > LONG_PML)

    @router.put(f"{PATH}/{{name}}")
    async def put_schema(name: str, request: Request) -> Response:
        """Keeps a schema in place of the one of this name."""
        engine, files, owner = service.engine, service.schemas, owner_of(request)
        body = await _put_body(request)
        terms = _terms(body, files.clock())

        checked = partial(_checked, engine, name, body.pml, owner)
        prepared = await looked(request, checked, len(body.pml))

        def put(listener: Listener) -> tuple[dict[str, Any], bool]:
            try:
                kept, before = files.put(owner, name, body.pml, terms)
            except FullError as error:
                raise ApiError(INVALID, str(error), "pml") from error
            if body.encode:
                with pml_faults("pml"):
                    prepared.encode(listener=listener)
            _settle(engine, files, owner, prepared, kept, before)
            return _told(engine, prepared, kept), before is None or before.text != kept.text

        told, new = await service.work(put, gone(request))
        return JSONResponse(told, 201 if new else 200)

    @router.get(f"{PATH}/{{name}}")
    async def get_schema(name: str, request: Request) -> Response:
        """Describes a schema."""
        engine, files, owner = service.engine, service.schemas, owner_of(request)

        def described() -> dict[str, Any]:
            kept = _found(files.get(owner, name), name)
            return _told(engine, prepared_schema(engine, kept.text, "pml", owner), kept)

        return JSONResponse(await looked(request, described, files.size(owner, name)))

    @router.get(PATH)
    async def list_schemas(
        request: Request, page_size: int = USUAL_PAGE, page_token: str | None = None
    ) -> Response:
        """Lists schemas by name."""
        engine, files, owner = service.engine, service.schemas, owner_of(request)
        if page_size < 1:
            raise ApiError(INVALID, f"page_size is {page_size}; it must be at least 1.", "page_size")
        after = _after(page_token)
        found = await looked(request, partial(files.all, owner))
        rest = [head for head in found if after is None or head.name > after]
        page = rest[: min(page_size, LARGEST_PAGE)]
        more = {"next_page_token": _token(page[-1].name)} if len(page) < len(rest) else {}
        return JSONResponse({"schemas": [_listed(engine, head) for head in page], **more})

    @router.patch(f"{PATH}/{{name}}")
    async def change_schema(name: str, request: Request) -> Response:
        """Changes how long a schema stays."""
        engine, files, owner = service.engine, service.schemas, owner_of(request)
        terms = _terms(_validated(TermsBody, await object_of(request)), files.clock())

        def changed() -> dict[str, Any]:
            before = files.get(owner, name)
            kept = _found(files.change(owner, name, terms), name, NOTHING_CHANGED)
            prepared = prepared_schema(engine, kept.text, "pml", owner)
            _settle(engine, files, owner, prepared, kept, before)
            return _told(engine, prepared, kept)

        return JSONResponse(await looked(request, changed, files.size(owner, name)))

    @router.delete(f"{PATH}/{{name}}")
    async def delete_schema(name: str, request: Request) -> Response:
        """Forgets a schema; its segments go when the budget wants their room."""
        engine, files, owner = service.engine, service.schemas, owner_of(request)

        def deleted() -> None:
            kept = _found(files.remove(owner, name), name, NOTHING_DELETED)
            if kept.pinned:
                engine.store.settings.unpin(_label(engine, owner, name))

        await looked(request, deleted)
        return Response(status_code=204)

    return router


# What a body says


async def _put_body(request: Request) -> PutBody:
    if media_type(request) in XML:
        try:
            return PutBody(pml=decode(await bytes_of(request)))
        except TextFileError as error:
            raise ApiError(INVALID, f"The document {error.what}. Send it in UTF-8.", "pml") from error
    try:
        return _validated(PutBody, await object_of(request))
    except ApiError as error:
        if error.kind is not WRONG_TYPE:
            raise
        words = f"{error.message} Or send PML as it is, as application/xml or text/xml."
        raise ApiError(WRONG_TYPE, words, error.param) from error


def _validated(kind: type[Body], given: dict[str, Any]) -> Body:
    try:
        return kind.model_validate(given)
    except ValidationError as error:
        raise misfit(error.errors(), given) from None


def _terms(body: TermsBody, now: float) -> Terms:
    """How long a schema stays.

    Raises:
        ApiError: that is no time, or there are two.
    """
    said = body.model_fields_set
    if "ttl" in said and "expires_at" in said:
        raise ApiError(INVALID, "ttl and expires_at say the same; send one of them.", "expires_at")
    if "ttl" in said:
        expires_at = None if body.ttl is None else now + _seconds(body.ttl)
    else:
        expires_at = None if body.expires_at is None else _moment(body.expires_at, now)
    return Terms("ttl" in said or "expires_at" in said, expires_at, body.pinned)


def _seconds(ttl: str | float) -> float:
    """A time to live in seconds: 300, "300s", "5m", "1h", "2d"."""
    found = _TTL.fullmatch(ttl) if isinstance(ttl, str) else None
    seconds = float(found[1]) * _UNITS[found[2] or "s"] if found else math.nan
    seconds = seconds if isinstance(ttl, str) else float(ttl)
    if not 0 < seconds <= LONGEST_SECONDS:
        raise ApiError(
            INVALID,
            f'ttl is {shown(ttl)}; it must be seconds above 0, or such as "300s", "5m" or "1h", and at '
            "most ten years.",
            "ttl",
        )
    return seconds


def _moment(given: str | float, now: float) -> float:
    """A point in time in seconds since 1970, of such a number or of ISO 8601 with a time zone."""
    at = math.nan
    if isinstance(given, str):
        try:
            parsed = datetime.datetime.fromisoformat(given)
            at = parsed.timestamp() if parsed.tzinfo is not None else math.nan
        except (ValueError, OverflowError):
            pass
    else:
        at = float(given)
    if not now < at <= now + LONGEST_SECONDS:
        raise ApiError(
            INVALID,
            f"expires_at is {shown(given)}; it must be a time to come, within ten years, such as "
            f"{_iso(now + 3600)}.",
            "expires_at",
        )
    return at


def _after(token: str | None) -> str | None:
    """The name that the page before ended with."""
    if not token:
        return None
    try:
        return base64.urlsafe_b64decode(token.encode("ascii")).decode("utf-8")
    except ValueError:
        raise ApiError(
            INVALID, "page_token is none that a page has brought. Begin without one.", "page_token"
        ) from None


def _token(name: str) -> str:
    return base64.urlsafe_b64encode(name.encode()).decode()


# What is done


def _checked(engine: Engine, name: str, text: str, owner: str) -> PreparedSchema:
    """A schema of this name without faults.

    Raises:
        ApiError: it has faults, or another name.
    """
    prepared = prepared_schema(engine, text, "pml", owner)
    if prepared.name != name:
        words = f"The schema is named {shown(prepared.name)} and is put as {shown(name)}. Make them the same."
        raise ApiError(INVALID, words, "name")
    faults = [one for one in prepared.check() if one.severity == "error"]
    if faults:
        raise fault_of_pml(PromptError(tuple(faults)), "pml")
    return prepared


def _found(kept: KeptSchema | None, name: str, advice: str = PUT_IT) -> KeptSchema:
    if kept is None:
        raise unknown_schema(name, advice=advice)
    return kept


def _settle(
    engine: Engine,
    files: SchemaFiles,
    owner: str,
    prepared: PreparedSchema,
    kept: KeptSchema,
    before: KeptSchema | None,
) -> None:
    """Has the store keep what a schema's terms ask for; what is not stored yet too, once it is.

    Raises:
        ApiError: the schema was deleted, or its time was over, while it was encoded.
    """
    now = files.clock()
    if kept.expires_at is not None and kept.expires_at > now:
        keys = [recipe.key for recipe in prepared.tokenized.encodings("anchored")]
        engine.store.keep(keys, kept.expires_at - now)
    if kept.pinned:
        pin(engine, prepared, None if kept.expires_at is None else kept.expires_at - now)
    elif before is not None and before.pinned:
        engine.store.settings.unpin(prepared.tokenized.label)
    still = files.settled(owner, kept.name)
    if kept.pinned and (still is None or not still.pinned):  # who deletes takes the file first, then the pin
        engine.store.settings.unpin(prepared.tokenized.label)
    _found(still, kept.name, GONE_MEANWHILE)


def _sweep(engine: Engine, files: SchemaFiles) -> None:
    for head in files.sweep():
        if head.pinned:
            engine.store.settings.unpin(_label(engine, head.owner, head.name))


def _label(engine: Engine, owner: str, name: str) -> str:
    """The name under which the store lists the segments of a client's schema."""
    return engine.schema(Schema(name, (), (), NOWHERE), salt=owner).tokenized.label


# What is told


def _listed(engine: Engine, head: Head) -> dict[str, Any]:
    return {
        "name": head.name,
        "model": engine.model.stored.name,
        "digest": head.digest,
        "created_at": _iso(head.created_at),
        "expires_at": None if head.expires_at is None else _iso(head.expires_at),
        "pinned": head.pinned,
    }


def _told(engine: Engine, prepared: PreparedSchema, kept: KeptSchema) -> dict[str, Any]:
    """A schema with its modules: a line for each piece of text that is a segment of its own."""
    book = prepared.tokenized.recipes()
    recipes = {run.index: book.of_run(run) for run in book.layout.runs if run.cacheable}
    tier = engine.segment_cache.tiers(recipes.values())
    modules = []
    for run in book.layout.runs:
        recipe = recipes.get(run.index)
        modules.append(
            {
                "path": run.path,
                "tokens": run.tokens,
                "key": None if recipe is None else recipe.key,
                "tier": "none" if recipe is None else tier(recipe),
            }
        )
    tokens = sum(run.tokens for run in book.layout.runs)
    return {**_listed(engine, kept.head("")), "token_count": tokens, "modules": modules}


def _iso(seconds: float) -> str:
    made = datetime.datetime.fromtimestamp(seconds, datetime.UTC)
    return made.isoformat(timespec="milliseconds").replace("+00:00", "Z")
