"""Forms with recordings (multipart/form-data), read with limits."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import AsyncIterator, Collection

from fastapi import Request
from starlette.datastructures import FormData, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser

from realtime_tts.audio.decode import MAX_BYTES
from realtime_tts.errors import AudioDecodeError, InvalidRequest
from realtime_tts.server.http.routes import bounded_parts, is_form
from realtime_tts.server.stream.socket_protocol import SOCKET_EXTENSION
from realtime_tts.server.voices.limits import VoiceMaking

MAX_BODY_BYTES = 2 * MAX_BYTES + 64 * 1024  # two recordings, and the fields
MAX_FIELD_CHARS = 4096
CONSENT_FIELDS = ("consent", "consent_by", "consent_scope")


@dataclasses.dataclass(frozen=True, slots=True)
class VoiceForm:
    """Content of a form: fields by name, and pairs of the field's name and the content of a non-empty file."""

    fields: dict[str, str]
    files: list[tuple[str, bytes]]

    def field(self, name: str) -> str:
        return self.fields.get(name, "")

    def files_of(self, name: str) -> tuple[bytes, ...]:
        return tuple(content for each, content in self.files if each == name)

    def file(self, name: str) -> bytes:
        """Return the single file of a name; b"" if there is none."""
        return b"".join(self.files_of(name))


@contextlib.asynccontextmanager
async def upload_place(request: Request, making: VoiceMaking, tenant: str) -> AsyncIterator[None]:
    """Hold an upload slot for a request's recordings. While it waits for one, its time limit does not run.

    Raises:
        Overloaded: too many requests wait already.
    """
    async with contextlib.AsyncExitStack() as place:
        with request.scope["extensions"][SOCKET_EXTENSION].waiting():
            await place.enter_async_context(making.uploads.place(tenant))
        yield


@dataclasses.dataclass(frozen=True, slots=True)
class FormShape:
    """Fields and files of a route's form. A field is given at most once.

    Attributes:
        max_files: maximum number of files of one name.
        ignores_others: ignore unknown fields and files, as clients of other services expect; else refuse them.
    """

    fields: Collection[str]
    files: Collection[str] = ()
    max_files: int = 1
    max_body_bytes: int = MAX_BODY_BYTES
    ignores_others: bool = False

    def documented(self) -> dict[str, dict[str, object]]:
        """Return the documented body of a route that reads this form."""
        described = {
            **{name: {"type": "string", "format": "binary"} for name in self.files},
            **{name: {"type": "string"} for name in self.fields},
        }
        content = {"multipart/form-data": {"schema": {"type": "object", "properties": described}}}
        return {"requestBody": {"required": True, "content": content}}

    async def read(self, request: Request, max_field_chars: int = MAX_FIELD_CHARS) -> VoiceForm:
        """Read the form of a request.

        Raises:
            RequestTooLarge, InvalidRequest, AudioDecodeError
        """
        if not is_form(request):
            raise InvalidRequest("the body is a form: multipart/form-data", field="content-type")
        others = 16 if self.ignores_others else 0
        parser = MultiPartParser(
            request.headers,
            bounded_parts(request, self.max_body_bytes),
            max_files=self.max_files * len(self.files) + others,
            max_fields=len(self.fields) + others,
            max_part_size=4 * max_field_chars,
        )
        try:
            form = await parser.parse()
        except MultiPartException as error:
            raise InvalidRequest(f"the form cannot be read: {error.message}") from None
        except UnicodeError:  # of a codec that raises no UnicodeDecodeError, which Starlette handles
            raise InvalidRequest("the form's charset cannot be used", field="content-type") from None
        try:
            return await self._checked(form, max_field_chars)
        finally:
            await form.close()

    async def _checked(self, form: FormData, max_field_chars: int) -> VoiceForm:
        read = VoiceForm({}, [])
        for key, value in form.multi_items():
            name = _encodable(key).removesuffix("[]")  # some clients mark lists with it
            is_file = isinstance(value, UploadFile)
            if name not in (self.files if is_file else self.fields):
                if self.ignores_others:
                    continue
                raise InvalidRequest(self._unknown(name, is_file), field=name[:64])
            if name in read.fields or (is_file and len(read.files_of(name)) == self.max_files):
                most = f"at most {self.max_files} times" if is_file and self.max_files > 1 else "once"
                raise InvalidRequest(f"{name} can be given {most}", field=name)
            if isinstance(value, UploadFile):
                if not (content := await value.read()):
                    raise AudioDecodeError("the file is empty", field=name)
                read.files.append((name, content))
            elif len(value) > max_field_chars:
                raise InvalidRequest(f"{name} has at most {max_field_chars} characters", field=name)
            else:
                read.fields[name] = _encodable(value)
        return read

    def _unknown(self, name: str, is_file: bool) -> str:
        if name in self.files:
            return f"{name} must be a file"
        if name in self.fields:
            return f"{name} must be text, not a file"
        kind, known = ("file", self.files) if is_file else ("field", self.fields)
        return f"there is no {kind} {name[:64]!r} in this form; it has {', '.join(known) or 'none'}"


def _encodable(text: str) -> str:
    """Return a text of a form, with "?" for each half of a UTF-16 pair, which some charsets can write (UTF-7)."""
    return text.encode(errors="replace").decode()
