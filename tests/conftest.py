"""What every test shares: the plugin we ship, and assertions that explain themselves."""

import pytest

pytest_plugins = ["pytester", "pytest_holdfast"]
pytest.register_assert_rewrite("holdfast.testing")
