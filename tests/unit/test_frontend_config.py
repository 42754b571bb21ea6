"""The settings of a frontend: where they may stand, how they may be spelled, what is wrong with them."""

import re
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from cluster_serving.client.redis_settings import RedisSettings
from cluster_serving.frontend.cli import frontend
from cluster_serving.frontend.config.loading import ConfigError, LoadedFrontendConfig, load_frontend_config
from cluster_serving.frontend.config.settings import GROUPS, FrontendConfig
from cluster_serving.frontend.config.spellings import SPELLINGS
from cluster_serving.frontend.server.child import to_plain
from cluster_serving.node.config.loading import Config, load_config
from support.certificates import PASSWORD, write_certificates

SECRETS = {"redisPassword": PASSWORD, "httpsKeyStoreToken": PASSWORD, "redisUrl": f"redis://u:{PASSWORD}@h"}


@pytest.fixture(autouse=True)
def empty_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty working directory, and no settings in the environment."""
    for name in ("CLUSTER_SERVING_REDIS_URL", "CLUSTER_SERVING_JOB_NAME", "CLUSTER_SERVING_LOG_LEVEL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


def load(text: str = "", environ: dict[str, str] | None = None, **flags: object) -> LoadedFrontendConfig:
    path = Path("config.yaml")
    path.write_text(text)
    return load_frontend_config(path, environ or {}, {f"--{name}": value for name, value in flags.items()})


def printed(*words: str) -> str:
    """Return the output of `--print-config`."""
    result = CliRunner().invoke(frontend, [*words, "--print-config"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def shown(*words: str) -> dict[str, list[str]]:
    """Return the settings that `--print-config` shows: key to value and source."""
    found = re.findall(r"^  (?:# )?(\w+): *(.*?) +# (.*)$", printed(*words), re.MULTILINE)
    return {key: [value.strip("'"), source] for key, value, source in found}


def test_flag_then_environment_then_section_then_shared_key() -> None:
    text = "redisTimeout: 1\nfrontend:\n  redisTimeout: 2\n"
    environ = {"CLUSTER_SERVING_REDIS_TIMEOUT": "3"}

    loaded = [load(text.split("frontend")[0]), load(text), load(text, environ), load(text, environ, redisTimeout="4")]

    assert [each.config.redis_timeout for each in loaded] == [1, 2, 3, 4]
    sources = [each.sources["redisTimeout"] for each in loaded]
    assert sources == ["config.yaml", "config.yaml", "CLUSTER_SERVING_REDIS_TIMEOUT", "--redisTimeout"]
    assert load().sources["redisTimeout"] == "default"


def test_one_file_for_node_and_frontend() -> None:
    text = """
modelPath: m
jobName: mine
redisUrl: there:7
redisPassword: pw
batchSize: 8
imageResize: 3,4
frontend:
  port: 8080
  tokens_per_second: 5
  max-body-size: 3m
"""
    config = load(text).config
    node = load_config(Path("config.yaml"), {}, {}).config

    assert (config.port, config.tokens_per_second, config.max_body_size) == (8080, 5, 3 << 20)
    assert (config.job_name, node.job_name) == ("mine", "mine")
    assert config.redis_settings() == RedisSettings("there", 7, password="pw") == node.redis_settings()  # noqa: S106


def test_settings_of_redis_are_shared() -> None:
    """A file for both: the node ignores what stands below `frontend`."""
    shared = set(Config.model_fields) & set(FrontendConfig.model_fields)
    of_redis = {str(Config.model_fields[name].alias) for name in shared if name.startswith(("redis", "sentinel"))}

    assert of_redis <= SPELLINGS.shared
    assert "sentinelPassword" in of_redis


def test_a_nested_file_of_the_original() -> None:
    text = """
model: {path: /m, name: old_job}
data: {src: "old:6399", image_shape: "3,224,224"}
params: {core_number: 4}
redis: {timeout: 700, maxmem: 4g}
secure: {secure_enabled: false, secure_struct_store_password: x}
spark: {master: local}
"""
    config = load(text).config

    assert config.redis_settings() == RedisSettings("old", 6399, timeout_s=0.7)
    assert config.job_name == "old_job"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("frontend:\n  prot: 1\n", "config.yaml, line 2: unknown key prot; did you mean port?"),
        ("port: 1\n", "config.yaml, line 1: port belongs below frontend: write it there"),
        ("frontend: 3\n", "config.yaml, line 1: expected lines of the form key: value below frontend"),
        ("frontend:\n  port: 1\n  port: 2\n", "line 3: port was given another value in line 2"),
        ("frontend:\n  port: many\n", "config.yaml, line 2: port is many, but must be a whole number"),
        ("frontend:\n  workers: 0\n", "workers is 0, but must be 1 or more"),
        ("jobName: 'a:b'\n", "config.yaml, line 1: jobName is a:b, but must have no ':', because results of a:b"),
        ("frontend:\n  rateLimitStatus: 503\n", "rateLimitStatus is 503, but must be 429 or 500"),
        ("frontend:\n  maxBodySize: big\n", "maxBodySize is big, but must be a size such as 64m"),
        ("frontend:\n  tokensPerSecond: .inf\n", "tokensPerSecond is .inf, but must be a number"),
        ("frontend:\n  redisPort: 70000\n", "redisPort is 70000, but must be 65535 or less"),
        *(
            (
                f"frontend:\n  callbackHosts: {hosts}\n",
                "callbackHosts is .*, but must have hosts, or host:port, without",
            )
            for hosts in ("http://hooks.internal", "a, b/path")
        ),
        *(
            (
                f"frontend:\n  corsOrigins: {origins}\n",
                "corsOrigins is .*, but must have origins as a browser sends them",
            )
            for origins in ("app.example", "https://a, https://App.example", "https://app.example/page")
        ),
        ("frontend:\n  redisHost: a..b\n", "redisHost is a..b, but the name of a host has 1 to 63 letters"),
        ("redisUrl: here:there\n", "config.yaml, line 1: redisUrl is here:there: port or db of the Redis URL"),
        ("redisUrl: here:70000\n", "redisUrl is here:70000: the port must be from 1 to 65535"),
        ("frontend:\n  httpsEnabled: true\n", "httpsKeyStorePath must be set"),
        ("frontend:\n  laterDurability: majority\n", "laterDurability is majority, so redisUrl must name Sentinels"),
        ("frontend:\n  laterDurability: all\n", "laterDurability is all, but must be 'none' or 'majority'"),
        (
            "frontend:\n  httpsEnabled: true\n  httpsKeyStorePath: k\n  port: 7\n  securePort: 7\n",
            "port and securePort are both 7",
        ),
        ("frontend:\n  apiKeysFile: s3://keys\n", "apiKeysFile is s3://keys, but must be a local path"),
        (
            "redisSecureEnabled: true\nredisSecureTrustStorePath: /nope\n",
            "config.yaml, line 2: redisSecureTrustStorePath /nope cannot be read",
        ),
        (
            "redisUrl: rediss://h\nredisCertFile: config.yaml\n",
            r"config.yaml, line 2: redisCertFile /.*/config.yaml is not a PEM file",
        ),
    ],
)
def test_what_is_wrong_is_named_with_its_place(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message.replace("[", r"\[")):
        load(text)


def test_a_secret_is_never_in_an_error() -> None:
    with pytest.raises(ConfigError) as caught:
        load(f"frontend:\n  httpsKeyStoreToken: [{PASSWORD}]\n")

    assert PASSWORD not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "environ", "flags", "expected"),
    [
        ("", {}, {"redisHost": "a"}, ("a", 6379)),
        ("", {}, {"redisPort": "7"}, ("localhost", 7)),
        ("redisUrl: u:1\n", {}, {"redisPort": "7"}, ("u", 7)),
        ("redisUrl: u:1\nfrontend:\n  redisHost: a\n", {}, {}, ("a", 1)),
        ("redisUrl: unix:///socket\n", {}, {"redisHost": "a"}, ("a", 6379)),
        # All of a stronger source's address counts, and nothing of a weaker one's.
        ("frontend:\n  redisHost: a\n", {"CLUSTER_SERVING_REDIS_URL": "u:1"}, {}, ("u", 1)),
        ("", {"CLUSTER_SERVING_REDIS_HOST": "a"}, {"redisUrl": "u:1"}, ("u", 1)),
    ],
)
def test_the_address_of_redis(
    text: str, environ: dict[str, str], flags: dict[str, object], expected: tuple[str, int]
) -> None:
    settings = load(text, environ, **flags).config.redis_settings()

    assert (settings.host, settings.port) == expected
    assert settings.unix_path is None


def test_a_trust_store_of_the_original_for_redis(tmp_path: Path) -> None:
    write_certificates(tmp_path)
    words = ("--redisSecureEnabled=true", "--redissTrustStorePath=trust.p12", "--redissTrustStoreToken", PASSWORD)

    rows = shown(*words)
    config = load(redisSecureEnabled="true", redissTrustStorePath="trust.p12", redissTrustStoreToken=PASSWORD).config

    assert rows["redisSecureTrustStorePath"] == [str(tmp_path / "trust.p12"), "--redis-secure-trust-store-path"]
    settings = config.redis_settings()
    assert settings.tls
    assert settings.ca_file is not None
    assert "CERTIFICATE" in Path(settings.ca_file).read_text()


ORIGINAL_OPTIONS = {
    "interface": ("127.0.0.1", "interface", "127.0.0.1"),
    "port": ("1", "port", "1"),
    "securePort": ("2", "securePort", "2"),
    "redisHost": ("h", "redisHost", "h"),
    "redisPort": ("3", "redisPort", "3"),
    "redisInputQueue": ("j", "jobName", "j"),
    "timeWindow": ("4", "timeWindow", "4"),
    "countWindow": ("5", "countWindow", "5"),
    "tokenBucketEnabled": ("true", "tokenBucketEnabled", "true"),
    "tokensPerSecond": ("6", "tokensPerSecond", "6"),
    "tokenAcquireTimeout": ("7", "tokenAcquireTimeout", "7"),
    "httpsEnabled": ("false", "httpsEnabled", "false"),
    "httpsKeyStorePath": ("/k", "httpsKeyStorePath", "/k"),
    "httpsKeyStoreToken": ("geheim", "httpsKeyStoreToken", "**********"),
    "redisSecureEnabled": ("false", "redisSecureEnabled", "false"),
    "redissTrustStorePath": ("/t", "redisSecureTrustStorePath", "/t"),
    "redissTrustStoreToken": ("geheim", "redisSecureTrustStorePassword", "**********"),
    "servableManagerConfPath": ("/s", "servableManagerConfPath", "/s"),
}


@pytest.mark.parametrize("option", ORIGINAL_OPTIONS)
def test_every_option_of_the_original_in_every_form(option: str) -> None:
    value, key, expected = ORIGINAL_OPTIONS[option]
    kebab = "".join(f"-{letter.lower()}" if letter.isupper() else letter for letter in option)

    rows = [shown(f"--{option}={value}"), shown(f"--{option}", value), shown(f"--{kebab}={value}")]

    assert [row[key][0] for row in rows] == [expected] * 3


@pytest.mark.parametrize(
    ("words", "ignored"),
    [
        (["--parallelism=10"], ["--parallelism"]),
        (["--redisOutputQueue", "result:"], []),
        (["--redisInputQueue=j", "--redisOutputQueue=cluster-serving_j:"], []),
        (["--redisOutputQueue=elsewhere:"], ["--redis-output-queue"]),
    ],
)
def test_options_without_a_meaning_are_accepted_with_the_reason(words: list[str], ignored: list[str]) -> None:
    assert re.findall("^# (.*) is ignored: ", printed(*words), re.MULTILINE) == ignored


@pytest.mark.parametrize(("words", "expected"), [(["--accessLog"], "true"), (["--accessLog", "--port=1"], "true")])
def test_a_boolean_alone_is_true(words: list[str], expected: str) -> None:
    assert shown(*words)["accessLog"][0] == expected


def test_a_misspelled_option_is_met_with_the_right_one() -> None:
    result = CliRunner().invoke(frontend, ["--tokenPerSecond=1"])

    assert result.exit_code == 2
    assert "No such option '--tokenPerSecond'" in result.output
    assert "--tokens-per-second" in result.output


def test_numbers_are_printed_as_they_are_written() -> None:
    rows = shown("--timeWindow=1.5")

    assert (rows["timeWindow"][0], rows["drainTimeout"][0]) == ("1.5", "15")


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("--redis-host=there", "--port", "7", "--token-bucket-enabled", "--cors-origins=http://a,https://b"),
        (
            "--redis-url=redis://u@there:7/3",
            "--job-name= odd #name\x1b\u202e",
            "--time-window=1.5",
            "--log-level=debug",
        ),
        ("--job-name=007", "--redis-username=null"),
    ],
)
def test_the_printed_settings_are_a_config_file(words: tuple[str, ...]) -> None:
    first = printed(*words)
    Path("config.yaml").write_text(first)

    again = printed()

    assert again.count("# config.yaml") > 20
    assert [line.partition("  # ")[0].rstrip() for line in again.splitlines()] == [
        line.partition("  # ")[0].rstrip() for line in first.splitlines()
    ]


def test_a_masked_secret_is_a_comment() -> None:
    text = printed("--redis-password=pw", "--redis-url=redis://:pw@h")

    document = yaml.safe_load(text)["frontend"]
    assert not {"redisPassword", "redisUrl"} & document.keys()
    assert re.search(r"^  # redisPassword: '\*+' +# --redis-password$", text, re.MULTILINE)


def test_what_kubernetes_says_of_a_service_is_no_setting() -> None:
    environ = {"CLUSTER_SERVING_PORT": "tcp://10.0.0.1:10020", "CLUSTER_SERVING_REDIS_PORT": "tcp://10.0.0.2:6379"}

    loaded = load(environ=environ)

    assert (loaded.config.port, loaded.config.redis_port) == (10020, None)
    assert loaded.ignored.keys() == environ.keys()


def test_secrets_are_masked_where_settings_are_printed() -> None:
    words = [f"--{key}={value}" for key, value in SECRETS.items()]

    result = CliRunner().invoke(frontend, [*words, "--print-config"], catch_exceptions=False)

    assert PASSWORD not in result.output
    assert "redis://u:***@h" in result.output


@pytest.mark.parametrize("width", [80, 100])
def test_the_help_has_every_key_once_and_fits(width: int) -> None:
    lines = CliRunner().invoke(frontend, ["-h"], terminal_width=width).output.splitlines()

    options = [line.split()[0] for line in lines if line.startswith("  --")]
    assert len(options) == len(set(options)) == len(FrontendConfig.model_fields) + 3
    assert max(map(len, lines)) <= width


def test_every_key_says_what_it_is_and_stands_in_one_group() -> None:
    grouped = [name for group in GROUPS for name in group.model_fields]

    assert sorted(grouped) == sorted(FrontendConfig.model_fields)
    assert all(field.description for field in FrontendConfig.model_fields.values())


def test_a_config_survives_the_pipe_to_a_process() -> None:
    flags: dict[str, object] = {"corsOrigins": "https://a, https://b", "requestTimeout": "1.5", **SECRETS}
    config = load_frontend_config(None, {}, flags).config

    assert FrontendConfig.model_validate(to_plain(config)) == config
