"""What the package exports, the names that need Dagster among it."""

import oloproof_dagster


def test_every_public_name_can_be_imported_and_is_listed() -> None:
    import oloproof

    for name in oloproof_dagster.__all__:
        assert getattr(oloproof, name) is getattr(oloproof_dagster, name)
    assert set(oloproof_dagster.__all__) <= set(dir(oloproof_dagster))
