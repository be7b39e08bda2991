"""Redaction: secrets in every form go, ordinary text stays, and no input makes it slow."""

import base64
import json
import signal
import subprocess
import sys
import uuid
from collections import Counter
from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexerd.privacy.patterns import compile_pattern
from indexerd.privacy.redact import Redactor, redact
from indexerd.privacy.sanitize import bare
from tests.sessions.canaries import CANARIES, WORD, noise, pem

CLOTHES: dict[str, Callable[[str], str]] = {
    "in a sentence": lambda text: f"Please use {text} from now on.",
    "on its own lines": lambda text: f"Before.\n\n{text}\n\nAfter.",
    "in a section": lambda text: f"User: here it is\n{text}\n\nAssistant: thank you, noted",
    "in a fence": lambda text: f"```sh\n{text}\n```\n",
    "JSON-escaped": lambda text: json.dumps({"text": f"line\n{text}\nline", "more": 1}),
    "JSON-escaped twice": lambda text: json.dumps(json.dumps([f"line\n{text}\nline"])),
    "coloured": lambda text: f"\x1b[32m{text}\x1b[0m done",
}


@pytest.mark.parametrize("clothes", CLOTHES)
@pytest.mark.parametrize("kind", CANARIES)
def test_each_kind_of_secret_is_found_in_every_form(kind: str, clothes: str) -> None:
    """S2.21: each secret is redacted once, and the text around it stays."""
    found = redact(CLOTHES[clothes](CANARIES[kind]))
    assert WORD.lower() not in found.text.lower()
    assert found.counts == {kind: 1}
    assert f"[redacted:{kind}]" in found.text
    around = CLOTHES[clothes]("SPLIT").split("SPLIT")
    assert found.text.startswith(bare(around[0]))
    assert found.text.endswith(bare(around[1]))


def test_the_secret_half_of_a_key_is_redacted() -> None:
    """S2.21: a key of z.ai is an id and a secret; a hash before a file's ending is none."""
    key, name = noise("zai", 16), f"{'0f' * 16}.tar"
    assert redact(f"set {'0f' * 16}.{key}, please").text == (
        f"set {'0f' * 16}.[redacted:vendor-token], please"
    )
    assert redact(name).text == name


HELD = f"{WORD}!x"
ASSIGNMENTS = [
    f'password = "{HELD}"',
    f"password: {HELD}",
    f"password:\n  {HELD}",
    f"password: |\n  {HELD}",
    f"password={HELD}",
    f'{{"password": "{HELD}"}}',
    f'{{\\"password\\": \\"{HELD}\\"}}',
    f'{{\\\\\\"password\\\\\\": \\\\\\"{HELD}\\\\\\"}}',
    json.dumps({"command": f'password = "{HELD}\\"{WORD}"'}),
    json.dumps({"body": json.dumps({"password": f'{HELD}"{WORD}'})}),
    f"\\nDB_PASSWORD={HELD}\\nHOST=x",
    f"const password = `{HELD}`;",
    f'password: str = "{HELD}"',
    f'config["password"] = "{HELD}"',
    f"'password' => '{HELD}',",
    f'String dbPassword = "{HELD}";',
    f'setenv("DB_PASSWORD", "{HELD}")',
    f'.withPassword("{HELD}")',
    f'auth: {{ user: "me", pass: "{HELD}" }}',
    f"SMTP_PASS={HELD}",
    f"**Password:** {HELD}",
    f"| password | {HELD} |",
    f"my password is {HELD}",
    f"tool --db-password {HELD} --verbose",
    f"curl -u me:{HELD} https://example.com",
    f"sshpass -p '{HELD}' ssh host",
    f"<password>{HELD}</password>",
    f"Server=db;User Id=me;Password={HELD};Encrypt=true",
    f"https://example.com/cb?access_token={HELD}&state=1",
    f"machine example.com\n  login me\n  password {HELD}",
    f"machine example.com\\nlogin me\\npassword {HELD}\\n",
    f"//registry.example.org/:_authToken={HELD}",
    f"redis://:{HELD}@cache:6379/0",
    f"mysql:\\/\\/me:{HELD}@db\\/x",
    f"https://{WORD}{WORD}{WORD}@example.com/repo.git",
    f"Authorization: Basic {base64.b64encode(WORD.encode()).decode()}",
    f"Authorization:\n  Bearer {HELD}",
    f'"Authorization": "token {HELD}"',
    f"proxy said: Bearer {WORD}{WORD}",
    f"the proxy wants Basic {base64.b64encode(WORD.encode()).decode()} from us",
    f'aws_secret_access_key = "{noise("aws", 40)}"',
    f"Added `CRON_SECRET` as a variable in your settings with value `{noise('aws', 40)}`.",
    f"AccountKey={noise('azure', 64)}==;EndpointSuffix=core",
    f'password="{HELD}',
    f"tokens: password={HELD}",
    f'password: "{WORD} horse battery staple"',
]


@pytest.mark.parametrize("text", ASSIGNMENTS)
def test_an_assigned_secret_is_caught_however_it_is_written(text: str) -> None:
    """S2.21: quoted, escaped, YAML, shell, headers, flags, connection strings; found once."""
    found = redact(text)
    assert WORD not in found.text
    assert base64.b64encode(WORD.encode()).decode() not in found.text
    assert sum(found.counts.values()) == 1
    assert redact(found.text).text == found.text


KEY = pem().split("\n")
BROKEN_KEYS = {
    "no last line": KEY[:-1],
    "cut in a line": [*KEY[:-3], KEY[-3][:30]],
    "cut in a short piece": [*KEY[:-3], KEY[-3][:5]],
    "no first line": KEY[1:],
    "begins in a line": [KEY[4][20:], *KEY[5:]],
    "two messages": [*KEY[:9], "", "Assistant: " + KEY[9], *KEY[10:]],
    "two messages, no end": [*KEY[:9], "", "Assistant: " + KEY[9], *KEY[10:-1]],
    "two messages, no beginning": [*KEY[2:9], "", "User: " + KEY[9], *KEY[10:]],
    "numbered entries": [*KEY[:9], "", "[a1b2c3d4] User: " + KEY[9], *KEY[10:-1]],
    "talk between": [*KEY[:9], "", "Assistant: I see, go on.", "", "User: " + KEY[9], *KEY[10:]],
    "quoted": ["> " + line for line in KEY],
    "line numbers, no end": [f"{n:4}\t{line}" for n, line in enumerate(KEY[:-1])],
    "in a summary's words": [*KEY[:9], "", "[Tool result]: " + KEY[9], *KEY[10:-1]],
    "joined by spaces": [" ".join(KEY[:-1])],
    "joined by tabs": ["\t".join(KEY[:-1])],
    "joined by spaces, no beginning": ["  ".join(KEY[1:])],
    "joined by spaces, cut in a short piece": [" ".join([*KEY[:-3], KEY[-3][:5]])],
    "joined quotes": [" > ".join(KEY[:-1])],
    "joined, encrypted": [" ".join([KEY[0], "Proc-Type: 4,ENCRYPTED", *KEY[1:-1]])],
    "joined by full stops": [". ".join(KEY[:-1])],
    "joined by underscores": ["_".join(KEY[:-1])],
    "joined by tags": ["</line><line>".join(KEY[:-1])],
    "logged": [f"2026-11-02T10:00:0{n % 10}Z info app: {line}" for n, line in enumerate(KEY[:-1])],
    "a comment": ["# " + line for line in KEY[:-1]],
    "encrypted": [KEY[0], "Proc-Type: 4,ENCRYPTED", "DEK-Info: AES-128-CBC,ABC", "", *KEY[1:-1]],
}


@pytest.mark.parametrize("escaped", [False, True], ids=["plain", "JSON-escaped"])
@pytest.mark.parametrize("how", BROKEN_KEYS)
def test_a_broken_private_key_still_goes(how: str, escaped: bool) -> None:
    """Unterminated, without its beginning, or over two messages; other text stays."""
    text = "User: my key\n\n" + "\n".join(BROKEN_KEYS[how]) + "\n\nAssistant: and now this."
    found = redact(json.dumps(text) if escaped else text)
    assert WORD not in found.text
    assert KEY[5][-20:] not in found.text
    assert found.counts == {"private-key": 1}
    assert "my key" in found.text
    assert "and now this." in found.text


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r", " ", "   ", "\t", "\\n", "\n> ", "\n  "])
def test_a_key_goes_to_its_end_and_the_sentence_after_it_stays(end: str) -> None:
    """Text may follow on the same line, also after a short last line of the key."""
    text = f"use {end.join([*KEY[:-2], 'aB3x9Q=='])} as I do"
    assert redact(text).text == "use [redacted:private-key] as I do"


@pytest.mark.parametrize(
    "end", [". As I said. ", "_as_I_said_ ", "\nWe then see 4 lines of base64."]
)
def test_prose_behind_a_key_stays(end: str) -> None:
    """Characters that join pieces of a key also join sentences."""
    text = " ".join(KEY[:-1]) + end
    assert redact(text).text == "[redacted:private-key]" + end


ORDINARY = """\
password: str
password: Optional[str] = None, secret: SecretStr
def login(user: str, password: str) -> Token:
token = get_token()
token = self.tokenizer.encode(text)
max_tokens=4096, "token_count": 81234,
token_limit = 200_000
commit 145f9d4b3a0c2d1e5f60718293a4b5c6d7e8f901 of 550e8400-e29b-41d4-a716-446655440000
PASSWORD=$PASSWORD
api_key_env = "GEMINI_API_KEY"
password_file = "/run/secrets/db1"
The password: it is stored hashed with argon2id.
The password is 8-characters long; the token is expired.
["username", "password", "token"]
PWD=/home/user1/work
Token: '#d0d0d0',
<input type="password" name="password1">
PASS: test_login_1
Authorization: Bearer $TOKEN
headers = {"Authorization": f"Bearer {token}"}
bearer authentication is used, and basic functionality
git@github.com:user/repo.git and postgres://user:password@localhost/db
sk-loading-indicator-container-large disk-a1b2c3d4e5f6g7h8i9j0k1l2
${{ secrets.GITHUB_TOKEN }}
password: ********, api_key: your-api-key-here
docker run -u 1000:1000 image
[redacted:password] = [redacted:token]
"password": "Your password must have at least 8 characters."
"""


@pytest.mark.parametrize("line", ORDINARY.splitlines())
def test_ordinary_text_stays(line: str) -> None:
    """Code, numbers, references, hashes and talk about secrets are not secrets."""
    assert redact(line).text == line
    assert redact(line).counts == {}


@given(st.uuids(), st.binary(min_size=20, max_size=32))
def test_ids_and_hashes_stay(some_id: uuid.UUID, digest: bytes) -> None:
    """A UUID or commit hash in a sentence is never redacted."""
    text = f"Session {some_id} ends at commit {digest.hex()} (see {digest.hex()[:7]})."
    assert redact(text).text == text


FRAGMENTS = [
    "password", "DB_PASSWORD=", "token: ", "secret", "api_key", ' = "', "='", '\\"', '"', "'", "`",
    "\\n", "\n", " ", "=", ":", "://", "user:", "@host", "User: ", "[redacted:", "]", "(", "[", "}",
    "<", ">", "/", ".", ",", "|", "&", "_", "-", "…", "İ", "0", "a", "Z", "is ", "!", "\\",
    "[redacted:jwt]", "[redacted:password]", "abc123def", "A1B2C3D4E5F6G7H8", WORD, WORD * 4,
    "-----BEGIN RSA PRIVATE KEY-----", "-----END RSA PRIVATE KEY-----", "eyJ", "Bearer ",
    "Authorization: ", "Basic ", "machine h login b password ", "--token ", "curl -u a:",
    "sk-", "sk-ant-", "ghp_", "AKIA", "AIza", "xoxb-", "1//0", ":AA", "SG.", "hf_", "?sig=",
]  # fmt: skip


PARTS = [*FRAGMENTS, *CANARIES.values(), *KEY, "\x1b[0m", "\u200b", "\u200d", "\u4e2d", "INT-1"]


@given(st.lists(st.lists(st.sampled_from(PARTS), max_size=5).map("".join), max_size=9))
def test_texts_are_redacted_as_one_and_stay_apart(texts: list[str]) -> None:
    """S2.21: joined they are what the joined text becomes, and texts without secrets are equal."""
    own = Redactor(("INT-[0-9]",))
    shown = [f"{text}\n\n" for text in texts]
    found = own.pieces(shown)
    whole = own("".join(shown))
    assert "".join(text for text, _ in found) == whole.text
    assert Counter(kind for _, kinds in found for kind in kinds) == whole.counts
    assert len(found) == len(texts)
    assert Redactor(enabled=False).pieces(shown) == [(text, []) for text in shown]


@given(st.sets(st.integers(1, len(pem()) - 1), min_size=1, max_size=4))
def test_no_part_of_a_key_over_several_texts_is_left(cuts: set[int]) -> None:
    """S2.21: its marker is where it begins, and the texts around it stay where they are."""
    first, *rest, last = (pem()[a:b] for a, b in pairwise([0, *sorted(cuts), None]))
    found, kinds = zip(*redact.pieces([f"before {first}", *rest, f"{last} after"]), strict=True)
    assert found == ("before [redacted:private-key]", *[""] * len(rest), " after")
    assert kinds[0] == ["private-key"]


@given(st.text(max_size=80), st.sampled_from(sorted(CANARIES.values())), st.text(max_size=80))
def test_no_neighbour_saves_a_secret(before: str, secret: str, after: str) -> None:
    """Whatever is on the lines around it, a secret is redacted."""
    assert WORD.lower() not in redact(f"{before}\n{secret}\n{after}").text.lower()


def test_the_most_specific_rule_names_a_find() -> None:
    """S2.21: a vendor's key in an assignment is counted once, as the vendor's."""
    found = redact(f'OPENAI_API_KEY="{CANARIES["openai-key"]}"')
    assert found.text == 'OPENAI_API_KEY="[redacted:openai-key]"'
    assert found.counts == {"openai-key": 1}


HOSTILE = r"""
import signal, sys
from indexerd.privacy.redact import Redactor

units = [
    "pwd=", "pwd='", "password=\"", "password=\\\"", "token=token1(", "token.", "token: a | b ",
    "pwd:\n\n", "pwd is ", "pwd" + "\\" * 7, "_pass", "a", "\n",
    "\\", "\\n", "=", "-----", "_", "@", "://a:", "https://a:b/", "sk-", "-sk-", "sk-ant-",
    "eyJ", "eyJa.", "-eyJ", "eyJaaaaaaaa.aaaaaaaa", "AKIA", "SG.", "1//0",
    "SG.aaaaaaaaaaaaaaaaa", ":AA", "0:AA", "bearer ", "authorization: ", "basic ", "cookie: a=",
    "machine a login b ", "--a-b-c-token ", "--a-", "<token>", "?sig", "?a-sig=", "curl -u a:",
    "sshpass -p ", "[redacted:", "[redacted:jwt]", "-----BEGIN ", "PRIVATE KEY ", "User: ",
    "PRIVATE KEY pwd=", "-----BEGIN PRIVATE KEY-----",
    "-----BEGIN PRIVATE KEY-----\n", "-----END PRIVATE KEY-----",
    "-----END PRIVATE KEY-----\n" + "A" * 64 + "\n", "\u0130",
    "-----END PRIVATE KEY----- a1 Comment: ", "A" * 16 + " ", "Comment: x ",
    "docker login ", "redis-cli ", "mysql ", "mysql-", "mongosh ", "ldapsearch ", "sqlcmd ",
    "unzip ", "7z ", "-passin ", "smbclient -U ", "smbclient ", "htpasswd -b ", "htpasswd -b a a ",
    " -p", "mysql -p", "mosquitto_sub -P", "\n x " + "A" * 48, "</a>", "_sk-proj-", "_sk-",
]
cases = [(unit * (200_000 // len(unit)), ()) for unit in units]
begin = "-----BEGIN PRIVATE KEY-----"
cases += [(start + text, ()) for start in (begin, begin + "Aa1" * 20) for text, _ in cases]
cases.append(("x" * 200_000, (r"x\w*y", "(a|a)*b")))
for text, extra in cases:
    print(ascii(text[:80]), flush=True)
    signal.setitimer(signal.ITIMER_PROF, 4)
    Redactor(extra)(text)
print("done")
"""


@pytest.mark.faults
def test_no_hostile_text_makes_it_quadratic() -> None:
    """200 KB of each rule's worst case end within 4 s, ten times what the slowest takes."""
    ran = subprocess.run(
        [sys.executable, "-c", HOSTILE], capture_output=True, text=True, check=False, timeout=55
    )
    assert ran.returncode != -signal.SIGPROF, f"too slow: {ran.stdout.splitlines()[-1]}"
    assert ran.stdout.endswith("done\n"), ran.stderr


def test_user_patterns_are_applied_line_by_line() -> None:
    """A user's pattern sees each line as a whole text, and never a marker."""
    own = Redactor((r"^INT-[0-9]+$", r"redacted"))
    found = own(f"INT-1\nsee INT-2\nINT-3\npassword: {HELD}\n")
    assert found.text == (
        "[redacted:custom]\nsee INT-2\n[redacted:custom]\npassword: [redacted:password]\n"
    )
    assert found.counts == {"custom": 2, "password": 1}


@pytest.mark.parametrize("pattern", ["(", "a*", "x|", "(?<=a)b", r"(a)\1", "a{2000}", "\ud800"])
def test_a_pattern_that_is_not_re2_or_fits_everything_is_refused(pattern: str) -> None:
    """Look-around and back-references are not linear; a match of "" would redact everything."""
    with pytest.raises(ValueError):
        compile_pattern(pattern)


def test_user_patterns_find_secrets_beside_any_characters() -> None:
    """Next to non-ASCII letters and lone surrogates, and in the longest lines."""
    own = Redactor(("Q+", r"(a+)+b"))
    found = own("é\ud800" + "x" * 5000 + "QQ" + "ä" * 3000 + "aaab")
    assert found.text == ("é" + "x" * 5000 + "[redacted:custom]" + "ä" * 3000 + "[redacted:custom]")


@pytest.mark.parametrize("hidden", ["\x1b[0m", "\x1b[31;1m", "\u200b", "\u00ad", "\x00", "\ufeff"])
def test_invisible_characters_hide_no_secret(hidden: str) -> None:
    """S2.21: a token split by colours or zero-width characters is found once."""
    token = f"ghp_a1B2c{hidden}3D4e5F6a1B2c3D4e5F6a1B2c3D4e5F6"
    text = f"found:\n\t{hidden}{token} in .env\n"
    found = redact(text)
    assert found.text == "found:\n\t[redacted:github-token] in .env\n"
    assert found.counts == {"github-token": 1}
    assert redact(found.text).text == found.text


FLAG = "Tr0ub4dor&3x"
COMMANDS = [
    f"docker login -u me -p {FLAG} registry.example.com",
    f"docker login -p{FLAG}",
    f"podman login -u me -p '{FLAG}' registry.example.com",
    f"az login --service-principal -u me -p {FLAG}",
    f"redis-cli -h cache -a {FLAG} ping",
    f"mysql -u root -p{FLAG} shop",
    f"mysql -uroot -p'{FLAG}' shop",
    f"mysqldump --password={FLAG} shop",
    "mysqladmin --password=letmein status",
    f"mariadb-dump -h db -p{FLAG} shop",
    f"mongosh db/shop -u me -p {FLAG}",
    f"psql postgresql://me:{FLAG}@db/shop",
    f"PGPASSWORD={FLAG} psql -h db",
    f"ldapsearch -x -D cn=me -w {FLAG} -b dc=x",
    f"sqlcmd -S db -U sa -P {FLAG}",
    f"mosquitto_pub -u me -P {FLAG} -t a",
    f"unzip -P {FLAG} a.zip",
    f"7z a -p{FLAG} a.7z src",
    f"openssl rsa -passin pass:{FLAG} -in a.pem",
    f"smbclient -U me%{FLAG} //host/share",
    f"htpasswd -bB users me {FLAG}",
    f"curl -U proxy:{FLAG} https://example.com",
]


@pytest.mark.parametrize("text", COMMANDS)
def test_a_password_on_a_command_line_goes(text: str) -> None:
    """S2.21: once, also in a script or in JSON, and redacting again changes nothing."""
    for one in (text, f"cd /w && {text}\necho done", json.dumps({"command": f"cd /w\n{text}"})):
        found = redact(one)

        assert FLAG not in found.text
        assert "letmein" not in found.text
        assert sum(found.counts.values()) == 1
        assert redact(found.text).text == found.text


@pytest.mark.parametrize(
    "text",
    [
        "docker login --password-stdin -u me registry.example.com",
        "docker login && docker run -p 8080:80 image",
        "docker login ghcr.io; mkdir -p build/out1",
        "docker run -p 8080:80 image",
        "docker login -u me -p $REGISTRY_PASSWORD",
        "mkdir -p /srv/data1 && ls -a /srv/data1",
        "redis-cli get key1 | ls -a build1",
        "mysql -u root -p shop",
        "mysql -P3306 -h db shop",
        'mysql -u root -p"$MYSQL_PASSWORD" shop',
        "mysql -u root -p${DB_PASSWORD} shop",
        "mysql -u root -p<password> shop",
        "mongosh --port 27017",
        "zip -r a.zip src -x build1",
        "the login page, -p and -a are flags",
    ],
)
def test_other_flags_of_the_same_letter_stay(text: str) -> None:
    """Ports, directories, variables, password prompts and other commands of a line."""
    assert redact(text).text == text


@pytest.mark.parametrize(
    "word", ["access", "account", "api", "auth", "encryption", "master", "private", "signing"]
)
def test_a_key_of_any_service_is_a_secret(word: str) -> None:
    """With any spelling of its name and any kind of quoted value."""
    for name in (f"{word}_key", f"{word.upper()}_KEY", f"{word}Key", f"MY_{word.upper()}_KEY"):
        for quote in ('"', "'", 'b"', "r'", 'f"', "u'"):
            told = redact(f"{name} = {quote}Zm9vYmFyYmF6cXV4MTIzNDU2{quote[-1]}").text
            assert "Zm9v" not in told, told
