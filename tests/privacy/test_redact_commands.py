"""core/redact: passwords that only the flags of one program give away."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

import pytest

from indexerd.privacy.redact import redact

HELD = "Tr0ub4dor&3x"
CAUGHT = [
    f"docker login -u me -p {HELD} registry.example.com",
    f"docker login -p{HELD}",
    f"podman login -u me -p '{HELD}' registry.example.com",
    f"az login --service-principal -u me -p {HELD}",
    f"redis-cli -h cache -a {HELD} ping",
    f"mysql -u root -p{HELD} shop",
    f"mysql -uroot -p'{HELD}' shop",
    f"mysqldump --password={HELD} shop",
    "mysqladmin --password=letmein status",
    f"mariadb-dump -h db -p{HELD} shop",
    f"mongosh db/shop -u me -p {HELD}",
    f"psql postgresql://me:{HELD}@db/shop",
    f"PGPASSWORD={HELD} psql -h db",
    f"ldapsearch -x -D cn=me -w {HELD} -b dc=x",
    f"sqlcmd -S db -U sa -P {HELD}",
    f"mosquitto_pub -u me -P {HELD} -t a",
    f"unzip -P {HELD} a.zip",
    f"7z a -p{HELD} a.7z src",
    f"openssl rsa -passin pass:{HELD} -in a.pem",
    f"smbclient -U me%{HELD} //host/share",
    f"htpasswd -bB users me {HELD}",
    f"curl -U proxy:{HELD} https://example.com",
]


@pytest.mark.parametrize("text", CAUGHT)
def test_a_password_on_a_command_line_goes(text: str) -> None:
    """S2.21: once, and redacting the result changes nothing; so in a script, and in JSON."""
    for one in (text, f"cd /w && {text}\necho done", json.dumps({"command": f"cd /w\n{text}"})):
        found = redact(one)

        assert HELD not in found.text
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
    """X6: ports, directories, variables, questions for a password, other commands of a line."""
    assert redact(text).text == text


HOSTILE = """
import signal
from indexerd.privacy.redact import redact

units = [
    "docker login ", "redis-cli ", "mysql ", "mysql-", "mongosh ", "ldapsearch ", "sqlcmd ",
    "unzip ", "7z ", "-passin ", "smbclient -U ", "smbclient ", "htpasswd -b ", "htpasswd -b a a ",
    " -p", "mysql -p", "mosquitto_sub -P",
]
for unit in units:
    print(unit, flush=True)
    signal.setitimer(signal.ITIMER_PROF, 4)
    redact(unit * (200_000 // len(unit)))
print("done")
"""


@pytest.mark.faults
def test_no_hostile_command_line_makes_it_quadratic() -> None:
    """X6: 200 KB of each rule's worst start; what is not linear hangs, and a signal ends it."""
    ran = subprocess.run(
        [sys.executable, "-c", HOSTILE], capture_output=True, text=True, check=False, timeout=55
    )

    assert ran.returncode != -signal.SIGPROF, f"too slow: {ran.stdout.splitlines()[-1]}"
    assert ran.stdout.endswith("done\n"), ran.stderr
