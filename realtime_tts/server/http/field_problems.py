"""Error messages for pydantic's validation errors of a request's body or query."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# By pydantic's error type; the placeholders are filled from the error's context.
_PROBLEMS = {
    "missing": "is missing",
    "extra_forbidden": "is not a field of this request",
    "string_type": "must be a string",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_parsing_size": "must be a whole number of fewer digits",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "finite_number": "must be a finite number",
    "list_type": "must be a list",
    "dict_type": "must be an object",
    "model_type": "must be an object",
    "greater_than": "must be greater than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be at most {le}",
    "too_long": "has at most {max_length} entries",
    "too_short": "has at least {min_length} entries",
    "string_too_long": "has at most {max_length} characters",
    "string_too_short": "has at least {min_length} characters",
    "literal_error": "must be {expected}",
    "enum": "must be {expected}",
}


def sentence(field: str, error: Mapping[str, Any]) -> str:
    """Return the message for an error in a field ("": in the whole body), without the value that was sent."""
    subject = field or "the body"
    if error["type"] == "json_invalid":
        return f"{subject} is not valid JSON"
    problem = _PROBLEMS.get(error["type"])
    return f"{subject}: {error['msg']}" if problem is None else f"{subject} {problem.format(**error.get('ctx', {}))}"
