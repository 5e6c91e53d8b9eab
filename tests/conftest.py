"""What every test shares: assertions of the shipped suites explain themselves."""

import pytest

pytest.register_assert_rewrite("holdfast.testing")
