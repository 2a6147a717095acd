"""What is wrong with a field is told in a sentence of our own."""

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
        ("{", "the body is not valid JSON", None),
        ("[]", "the body must be an object", None),
        ("{}", "name is missing", "name"),
        ('{"name": 1}', "name must be a string", "name"),
        ('{"name": ""}', "name has at least 1 characters", "name"),
        ('{"name": "four"}', "name has at most 3 characters", "name"),
        ('{"name": "a", "count": "1"}', "count must be a whole number", "count"),
        ('{"name": "a", "count": 1.5}', "count must be a whole number", "count"),
        ('{"name": "a", "count": 0}', "count must be at least 1", "count"),
        ('{"name": "a", "count": 10}', "count must be at most 9", "count"),
        ('{"name": "a", "share": 0}', "share must be greater than 0.0", "share"),
        ('{"name": "a", "share": 1}', "share must be less than 1.0", "share"),
        ('{"name": "a", "share": NaN}', "share must be a finite number", "share"),
        ('{"name": "a", "share": "x"}', "share must be a number", "share"),
        ('{"name": "a", "kind": "c"}', "kind must be 'a' or 'b'", "kind"),
        ('{"name": "a", "items": "x"}', "items must be a list", "items"),
        ('{"name": "a", "items": ["x", "y", "z"]}', "items has at most 2 entries", "items"),
        ('{"name": "a", "items": [1]}', "items.0 must be a string", "items.0"),
        ('{"name": "a", "inner": {"flag": 1}}', "inner.flag must be true or false", "inner.flag"),
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
