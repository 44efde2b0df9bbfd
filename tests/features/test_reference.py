"""The generated column reference."""

from xlarank.features.reference import TARGET, markdown


def test_features_md_is_up_to_date():
    assert TARGET.read_text(encoding="utf-8") == markdown(), "run: python -m xlarank.features.reference"
