r"""Passwords on command lines, where a flag of one program says what another's means otherwise.

In: nothing; these are data for `redact`. A rule is the words of which one must occur, and a
pattern whose group `v` is the password; how a genuine one looks is judged there. Letters count
as they are: `mysql -P` is a port. A pattern begins with the program and looks no farther than
`_REACH` characters, and not beyond the command, so that its work is bounded.
"""

from __future__ import annotations

WORD = r"(?P<v>[^\s\x1b\"'\\]{4,}+)"
_REACH = 200
_ARGS = rf"(?:(?!&&|\\n)[^\n|;]){{0,{_REACH}}}?[ \t]"  # between a program and its flag
_LEFT = r"(?:(?<![\w.-])|(?<=\\[nrt]))"  # a word begins, perhaps after an escaped line end
_S = r"[ \t]{1,8}"
_Q = r"\\?[\"']?"  # a quote, perhaps escaped

_LOGIN = r"(?:docker|podman|nerdctl|buildah|skopeo|oras|helm registry|az(?: acr)?) login\b"
_MYSQL = rf"{_LEFT}(?:mysql|mariadb)(?:dump|admin|import|show|sh|check|-[a-z]{{2,9}})?\b"
_MONGO = rf"{_LEFT}mongo(?:sh|dump|restore|export|import)?\b"

COMMANDS = (
    (" login", _LOGIN + rf"{_ARGS}-p[ =]?{_Q}{WORD}"),
    ("-cli", rf"(?:redis|valkey|keydb)-cli\b{_ARGS}-a{_S}{_Q}{WORD}"),
    ("mysql mariadb", rf"{_MYSQL}{_ARGS}(?:-p|--password=){_Q}{WORD}"),
    ("mongo", rf"{_MONGO}{_ARGS}(?:-p[ \t]{{0,8}}|--password[= ]){_Q}{WORD}"),
    (
        "ldap",
        rf"{_LEFT}ldap(?:search|add|modify|delete|passwd|whoami)\b{_ARGS}-w[ \t]{{0,8}}{_Q}{WORD}",
    ),
    (
        "sqlcmd mosquitto_",
        rf"{_LEFT}(?:sqlcmd|mosquitto_[a-z]{{3,5}})\b{_ARGS}-P[ \t]{{0,8}}{_Q}{WORD}",
    ),
    ("zip", rf"{_LEFT}(?:un)?zip\b{_ARGS}-P[ \t]{{0,8}}{_Q}{WORD}"),
    ("7z", rf"{_LEFT}7za?\b{_ARGS}-p{_Q}{WORD}"),
    ("-pass", rf"-pass(?:in|out|wd)?[ =]{_Q}pass:{WORD}"),
    (
        "smbclient",
        rf"{_LEFT}smbclient\b{_ARGS}(?:-U[ \t]{{0,8}}|--user[= ]){_Q}[^\s%]{{1,99}}%{WORD}",
    ),
    (
        "htpasswd",
        rf"{_LEFT}htpasswd{_S}-\w{{0,9}}b\w{{0,9}}{_S}\S{{1,200}}{_S}\S{{1,99}}{_S}{WORD}",
    ),
    ("sshpass", rf"sshpass +-p *{_Q}{WORD}"),
    ("curl wget", rf"\s(?:-[uU]|--user)[ =]{_Q}[^\s:\"'/]{{1,99}}:{WORD}"),
)
