"""What is wrong with a field is told in a sentence that names it."""

from __future__ import annotations

from typing import Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from realtime_tts.dialects.json_input import invalid
from realtime_tts.errors import InvalidRequest


class Inner(BaseModel):
    flag: bool = False


class Body(BaseModel):
    model_config = ConfigDict(extra="forbid")
    name: str = Field(min_length=1, max_length=3)
    count: int = Field(1, ge=1, le=9)
    share: float = Field(0.5, gt=0, lt=1, allow_inf_nan=False)
    kind: Literal["a", "b"] = "a"
    items: list[str] = Field([], max_length=2)
    inner: Inner = Inner()


@pytest.mark.parametrize(
    ("body", "said", "field"),
    [
        ("{", "the body: Invalid JSON: EOF while parsing an object at line 1 column 1", None),
        ("[]", "the body must be an object", None),
        ("{}", "name is missing", "name"),
        ('{"name": 1}', "name must be a valid string", "name"),
        ('{"name": ""}', "name must have at least 1 character", "name"),
        ('{"name": "four"}', "name must have at most 3 characters", "name"),
        ('{"name": "a", "count": "1"}', "count must be a valid integer", "count"),
        ('{"name": "a", "count": 1.5}', "count must be a valid integer", "count"),
        ('{"name": "a", "count": 0}', "count must be greater than or equal to 1", "count"),
        ('{"name": "a", "count": 10}', "count must be less than or equal to 9", "count"),
        ('{"name": "a", "share": 0}', "share must be greater than 0", "share"),
        ('{"name": "a", "share": 1}', "share must be less than 1", "share"),
        ('{"name": "a", "share": NaN}', "share must be a finite number", "share"),
        ('{"name": "a", "share": "x"}', "share must be a valid number", "share"),
        ('{"name": "a", "kind": "c"}', "kind must be 'a' or 'b'", "kind"),
        ('{"name": "a", "items": "x"}', "items must be a valid array", "items"),
        ('{"name": "a", "items": ["x", "y", "z"]}', "items must have at most 2 items after validation, not 3", "items"),
        ('{"name": "a", "items": [1]}', "items.0 must be a valid string", "items.0"),
        ('{"name": "a", "inner": {"flag": 1}}', "inner.flag must be a valid boolean", "inner.flag"),
        ('{"name": "a", "inner": 1}', "inner must be an object", "inner"),
        ('{"name": "a", "more": 1}', "more is not a field of this request", "more"),
    ],
)
def test_what_is_wrong_with_a_body_is_told_in_a_sentence(body: str, said: str, field: str | None) -> None:
    with pytest.raises(ValidationError) as raised:
        Body.model_validate_json(body, strict=True)
    first: Any = raised.value.errors()[0]
    problem = invalid(InvalidRequest, first)
    assert (problem.message, problem.field) == (said, field)
