"""How much is asked of each broken component."""

import zlib

import pytest

SHARE = 5


@pytest.fixture
def asked(request):
    """`asked(name, broken, rules)`: the rules to run on the broken component `name`: those that it breaks, and
    a fifth of the others, another one for each name; all of them under the hypothesis profile `nightly`.
    """

    def asked(name, broken, rules):
        if request.config.getoption("--hypothesis-profile") == "nightly":
            return list(rules)
        at = zlib.crc32(name.encode()) % SHARE
        return [rule for index, rule in enumerate(rules) if rule in broken or index % SHARE == at]

    return asked
