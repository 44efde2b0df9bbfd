"""Output of ``--json`` against the schema of the documentation."""

import json
from pathlib import Path

import pytest

SCHEMA = json.loads(
    (Path(__file__).parents[1] / "docs/reference/schema.json").read_text(encoding="utf-8")
)


def validate(name, value):
    """Check a value against a definition of the schema."""
    jsonschema = pytest.importorskip("jsonschema")
    schema = {**SCHEMA, "$ref": f"#/$defs/{name}"}
    jsonschema.validate(value, schema, jsonschema.Draft202012Validator)
