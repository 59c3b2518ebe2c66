import pytest

from areal_core.spec.secrets import shown, without_secrets


def test_only_values_under_names_of_secrets_are_masked():
    given = {
        "api_key": "auto",
        "token": "a",
        "hub_token": "b",
        "max_new_tokens": "c",
        "password": "d",
        "tokens": "e",
        "text": "key=value",
    }
    masked = without_secrets(given)
    assert [name for name, value in masked.items() if value == "***"] == ["token", "hub_token", "password"]


@pytest.mark.parametrize(
    "key",
    [
        *("Authorization", "X-Api-Key", "apikey", "apiKey", "hf_token", "private_key", "client-secret", "a.password"),
        *("OPENAI_API_KEYS", "private_keys", "secrets", "secret_keys", "passwords"),
    ],
)
def test_headers_and_keys_are_known_by_their_usual_names(key):
    assert without_secrets({key: "s3cret"}) == {key: "***"}


@pytest.mark.parametrize(
    ("override", "masked"),
    [
        ("seed=4", "seed=4"),
        ("trackers.0.api_key=s3cret", "trackers.0.api_key=***"),
        ("--set=trackers.0.api_key=s3cret", "--set=trackers.0.api_key=***"),
        ("reward.headers={Authorization: s3cret}", "reward.headers=***"),
        ('trackers=[{type: wandb, "api_key": s3cret}]', "trackers=***"),
        ("training={max_steps: 5}", "training={max_steps: 5}"),
        ("trackers.0.url=https://u:s3cret@host/a", "trackers.0.url=https://u:***@host/a"),
    ],
)
def test_an_override_that_holds_a_secret_is_masked(override, masked):
    assert without_secrets([override]) == [masked]


@pytest.mark.parametrize(
    ("url", "masked"),
    [
        ("https://u:s3cret@host:80/a", "https://u:***@host:80/a"),
        ("redis://:s3cret@host", "redis://:***@host"),
        ("redis://u:s3@cr:et@host", "redis://u:***@host"),
        ("a redis://u:p@h, redis://v:q@i", "a redis://u:***@h, redis://v:***@i"),
        ("https://host:80/a@b", "https://host:80/a@b"),
        ("https://u:${env:KEY}@host", "https://u:${env:KEY}@host"),
    ],
)
def test_a_password_inside_a_url_is_masked(url, masked):
    assert without_secrets({"url": url, "urls": [url]}) == {"url": masked, "urls": [masked]}


def test_every_item_of_a_list_of_secrets_is_masked():
    assert without_secrets({"api_keys": ["a", "b"], "names": ["a"]}) == {"api_keys": ["***", "***"], "names": ["a"]}


def test_what_came_from_the_environment_is_shown_by_its_name(monkeypatch):
    monkeypatch.setenv("KEY", "s3cret")
    monkeypatch.setenv("STEPS", "7")
    monkeypatch.setenv("ON", "true")
    resolved = {
        "trackers": [{"api_key": "s3cret", "url": "https://u:s3cret@host"}],
        "training": {"max_steps": 7, "on": True, "batch_size": 7},
    }
    origins = {
        "trackers.0.api_key": "env:KEY",
        "trackers.0.url": "env:KEY",
        "training.max_steps": "env:STEPS",
        "training.on": "env:ON",
        "training.batch_size": "spec.yaml:3",
    }
    assert shown(resolved, origins) == {
        "trackers": [{"api_key": "${env:KEY}", "url": "https://u:${env:KEY}@host"}],
        "training": {"max_steps": "${env:STEPS}", "on": "${env:ON}", "batch_size": 7},
    }


def test_a_default_that_stood_in_for_a_variable_is_shown(monkeypatch):
    monkeypatch.delenv("STEPS", raising=False)
    assert shown({"steps": 7}, {"steps": "env:STEPS"}) == {"steps": 7}
