"""Endpoints for stored schemas: put, get, list, change lifetime, delete."""

from __future__ import annotations

import base64
import datetime
import math
import re
from collections.abc import Callable
from functools import partial
from typing import Literal, TypeVar

from fastapi import APIRouter, Request, Response
from pydantic import MISSING, Field, ValidationError

from app.server.core.pml_requests import PUT_IT, pin, pml_faults, prepared_schema, unknown_schema
from app.server.core.schema_files import FullError, SchemaFiles
from app.server.core.service import LONG_PML, Service
from app.server.core.stored_schema import Head, KeptSchema, Terms
from app.server.http.bodies import BodyRoute, Strict, bytes_of, media_type, object_of
from app.server.http.errors import INVALID, WRONG_TYPE, ApiError, fault_of_pml
from app.server.http.openapi_responses import errors, reference
from app.server.http.shapes import Count, Reply, optional
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
NOTHING_DELETED = f"Nothing was deleted; GET {PATH} lists the schemas."
NOTHING_CHANGED = f"Nothing was changed; store it first with PUT {PATH}/NAME."
GONE_MEANWHILE = "It was deleted or expired meanwhile; store it again."
LONGEST_SECONDS = 10 * 365 * 86400.0
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
Made = TypeVar("Made")
_TTL = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,9})?)([smhd]?)")


class TermsBody(Strict):
    """Lifetime of a schema. Absent fields stay unchanged."""

    ttl: str | float | None = optional('Seconds, or a time: "300s", "5m", "1h", "2d". null removes it.')
    expires_at: str | float | None = optional("ISO 8601 with a zone, or seconds since 1970. null removes it.")
    pinned: bool | None = optional("Whether its segments are never evicted.")


class PutBody(TermsBody):
    """A schema, its lifetime, and whether to encode it now."""

    pml: str = Field(description="The schema, in PML, with the name of the path.")
    encode: bool = optional("Whether to compute missing segments before the response.", False)


class ListedSchema(Reply):
    """A schema."""

    name: str
    model: str
    digest: str
    created_at: str
    expires_at: str | None
    pinned: bool


class SchemaSegment(Reply):
    """A segment."""

    path: str
    tokens: Count
    key: str | None
    tier: Literal["memory", "disk", "none"]


class StoredSchema(ListedSchema):
    """A stored schema."""

    token_count: Count
    modules: list[SchemaSegment]


class SchemaPage(Reply):
    """A page of schemas, without their modules."""

    schemas: list[ListedSchema]
    next_page_token: str | MISSING = MISSING


def routes(service: Service) -> APIRouter:
    """Returns the endpoints."""
    router = APIRouter(route_class=BodyRoute, strict_content_type=False)

    def owner_of(request: Request) -> str:
        return service.salt(None, request.state.client)

    put_content = {kind: {"schema": {"type": "string"}} for kind in sorted(XML)}
    put_content["application/json"] = {"schema": reference(PutBody)}

    async def looked(request: Request, do: Callable[[], Made], size: int = 0) -> Made:
        """Deletes expired schemas, then runs a function on a lookup thread."""
        engine, files = service.engine, service.schemas

        def look() -> Made:
            _sweep(engine, files)
            return do()

        return await service.look(look, request.state.client, gone(request), long=size > LONG_PML)

    @router.put(
        f"{PATH}/{{name}}",
        responses={
            201: {"model": StoredSchema, "description": "The schema is new or its text has changed."},
            **errors(),
        },
        openapi_extra={"requestBody": {"required": True, "content": put_content}},
    )
    async def put_schema(name: str, request: Request, response: Response) -> StoredSchema:
        """Stores a schema and replaces an earlier one of the same name."""
        engine, files, owner = service.engine, service.schemas, owner_of(request)
        body = await _put_body(request)
        terms = _terms(body, files.clock())

        checked = partial(_checked, engine, name, body.pml, owner)
        prepared = await looked(request, checked, len(body.pml))

        def put(listener: Listener) -> tuple[StoredSchema, bool]:
            try:
                stored, before = files.put(owner, name, body.pml, terms)
            except FullError as error:
                raise ApiError(INVALID, str(error), "pml") from error
            if body.encode:
                with pml_faults("pml"):
                    prepared.encode(listener=listener)
            _settle(engine, files, owner, prepared, stored, before)
            return _told(engine, prepared, stored), before is None or before.text != stored.text

        stored, new = await service.work(put, gone(request))
        response.status_code = 201 if new else 200
        return stored

    @router.get(f"{PATH}/{{name}}", responses=errors(never=(415,)))
    async def get_schema(name: str, request: Request) -> StoredSchema:
        """Returns a schema."""
        engine, files, owner = service.engine, service.schemas, owner_of(request)

        def described() -> StoredSchema:
            stored = _found(files.get(owner, name), name)
            return _told(engine, prepared_schema(engine, stored.text, "pml", owner), stored)

        return await looked(request, described, files.size(owner, name))

    @router.get(PATH, responses=errors(never=(415,)))
    async def list_schemas(
        request: Request, page_size: int = USUAL_PAGE, page_token: str | None = None
    ) -> SchemaPage:
        """Lists schemas by name."""
        engine, files, owner = service.engine, service.schemas, owner_of(request)
        if page_size < 1:
            raise ApiError(INVALID, f"page_size is {page_size}; it must be at least 1.", "page_size")
        after = _after(page_token)
        heads = await looked(request, partial(files.all, owner))
        rest = [head for head in heads if after is None or head.name > after]
        page = rest[: min(page_size, LARGEST_PAGE)]
        following = _token(page[-1].name) if len(page) < len(rest) else MISSING
        listed = [_listed(engine, head) for head in page]
        return SchemaPage(schemas=listed, next_page_token=following)

    @router.patch(f"{PATH}/{{name}}", responses=errors())
    async def change_schema(name: str, body: TermsBody, request: Request) -> StoredSchema:
        """Changes the lifetime of a schema."""
        engine, files, owner = service.engine, service.schemas, owner_of(request)
        terms = _terms(body, files.clock())

        def changed() -> StoredSchema:
            before = files.get(owner, name)
            stored = _found(files.change(owner, name, terms), name, NOTHING_CHANGED)
            prepared = prepared_schema(engine, stored.text, "pml", owner)
            _settle(engine, files, owner, prepared, stored, before)
            return _told(engine, prepared, stored)

        return await looked(request, changed, files.size(owner, name))

    @router.delete(f"{PATH}/{{name}}", status_code=204, responses=errors(never=(415,)))
    async def delete_schema(name: str, request: Request) -> Response:
        """Deletes a schema; its segments stay until they are evicted."""
        engine, files, owner = service.engine, service.schemas, owner_of(request)

        def deleted() -> None:
            stored = _found(files.remove(owner, name), name, NOTHING_DELETED)
            if stored.pinned:
                engine.store.settings.unpin(_label(engine, owner, name))

        await looked(request, deleted)
        return Response(status_code=204)

    return router


async def _put_body(request: Request) -> PutBody:
    if media_type(request) in XML:
        try:
            return PutBody(pml=decode(await bytes_of(request)))
        except TextFileError as error:
            raise ApiError(INVALID, f"The document {error.what}. Send it in UTF-8.", "pml") from error
    try:
        given = await object_of(request)
        return PutBody.model_validate(given)
    except ValidationError as error:
        raise misfit(error.errors(), given) from None
    except ApiError as error:
        if error.kind is not WRONG_TYPE:
            raise
        words = f"{error.message} Or send plain PML, as application/xml or text/xml."
        raise ApiError(WRONG_TYPE, words, error.param) from error


def _terms(body: TermsBody, now: float) -> Terms:
    """The lifetime in a body."""
    fields = body.model_fields_set
    if "ttl" in fields and "expires_at" in fields:
        raise ApiError(INVALID, "ttl and expires_at exclude each other; send one of them.", "expires_at")
    if "ttl" in fields:
        expires_at = None if body.ttl is None else now + _seconds(body.ttl)
    else:
        expires_at = None if body.expires_at is None else _moment(body.expires_at, now)
    return Terms("ttl" in fields or "expires_at" in fields, expires_at, body.pinned)


def _seconds(ttl: str | float) -> float:
    """A time to live in seconds: 300, "300s", "5m", "1h", "2d"."""
    match = _TTL.fullmatch(ttl) if isinstance(ttl, str) else None
    seconds = float(match[1]) * _UNITS[match[2] or "s"] if match else math.nan
    seconds = seconds if isinstance(ttl, str) else float(ttl)
    if not 0 < seconds <= LONGEST_SECONDS:
        raise ApiError(
            INVALID,
            f'ttl is {shown(ttl)}; it must be seconds above 0, or a time such as "300s", "5m" or "1h", '
            "up to ten years.",
            "ttl",
        )
    return seconds


def _moment(given: str | float, now: float) -> float:
    """A time in seconds since 1970, from a number or ISO 8601 with a time zone."""
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
            f"expires_at is {shown(given)}; it must be a future time within ten years, such as "
            f"{_iso(now + 3600)}.",
            "expires_at",
        )
    return at


def _after(token: str | None) -> str | None:
    """The last name of the previous page."""
    if not token:
        return None
    try:
        return base64.urlsafe_b64decode(token.encode("ascii")).decode("utf-8")
    except ValueError:
        raise ApiError(INVALID, "page_token is not from a page. Start without one.", "page_token") from None


def _token(name: str) -> str:
    return base64.urlsafe_b64encode(name.encode()).decode()


def _checked(engine: Engine, name: str, text: str, owner: str) -> PreparedSchema:
    """Prepares a schema after checking its name and contents."""
    prepared = prepared_schema(engine, text, "pml", owner)
    if prepared.name != name:
        words = f"The schema is named {shown(prepared.name)}, the path has {shown(name)}. Make them the same."
        raise ApiError(INVALID, words, "name")
    faults = [diagnostic for diagnostic in prepared.check() if diagnostic.severity == "error"]
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
    """Applies a schema's terms to its segments, including segments that are not stored yet."""
    now = files.clock()
    if kept.expires_at is not None and kept.expires_at > now:
        keys = [recipe.key for recipe in prepared.tokenized.encodings("anchored")]
        engine.store.keep(keys, kept.expires_at - now)
    if kept.pinned:
        pin(engine, prepared, None if kept.expires_at is None else kept.expires_at - now)
    elif before is not None and before.pinned:
        engine.store.settings.unpin(prepared.tokenized.label)
    still = files.settled(owner, kept.name)
    if kept.pinned and (still is None or not still.pinned):  # a deletion removes the file first, then the pin
        engine.store.settings.unpin(prepared.tokenized.label)
    _found(still, kept.name, GONE_MEANWHILE)


def _sweep(engine: Engine, files: SchemaFiles) -> None:
    for head in files.sweep():
        if head.pinned:
            engine.store.settings.unpin(_label(engine, head.owner, head.name))


def _label(engine: Engine, owner: str, name: str) -> str:
    """The store's label of a client schema's segments."""
    return engine.schema(Schema(name, (), (), NOWHERE), salt=owner).tokenized.label


def _listed(engine: Engine, head: Head) -> ListedSchema:
    return ListedSchema(
        name=head.name,
        model=engine.model.stored.name,
        digest=head.digest,
        created_at=_iso(head.created_at),
        expires_at=None if head.expires_at is None else _iso(head.expires_at),
        pinned=head.pinned,
    )


def _told(engine: Engine, prepared: PreparedSchema, kept: KeptSchema) -> StoredSchema:
    """Describes a schema with one entry for each segment."""
    book = prepared.tokenized.recipes()
    recipes = {run.index: book.of_run(run) for run in book.layout.runs if run.cacheable}
    tier = engine.segment_cache.tiers(recipes.values())
    modules = []
    for run in book.layout.runs:
        recipe = recipes.get(run.index)
        found = {"key": None, "tier": "none"} if recipe is None else {"key": recipe.key, "tier": tier(recipe)}
        modules.append(SchemaSegment(path=run.path, tokens=run.tokens, **found))
    tokens = sum(run.tokens for run in book.layout.runs)
    return StoredSchema(**vars(_listed(engine, kept.head(""))), token_count=tokens, modules=modules)


def _iso(seconds: float) -> str:
    moment = datetime.datetime.fromtimestamp(seconds, datetime.UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
