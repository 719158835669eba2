"""Collects names from a log: values of keys, parts of URLs and paths, shell prompts; block by block."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache

from nccl_inspect.extras.anonymize.names import (
    KEPT_ROOTS,
    LIBRARIES,
    PUBLIC_DOMAINS,
    PUBLIC_HOSTS,
    PUBLIC_PLACES,
    bracket_expressions,
    split_hosts,
    stated_lists,
)
from nccl_inspect.util.text import decode

_USERS = frozenset(("user", "username", "login", "logname", "owner", "author"))
_HOSTS = frozenset(("host", "hostname", "computer", "node", "nodename"))
_SUBJECTS = frozenset(
    (
        *("account", "acct", "project", "experiment", "exp", "job", "jobname", "run", "cluster", "partition", "qos"),
        *("reservation", "namespace", "pod", "instance", "app", "tenant", "team", "org", "organization", "company"),
        *("entity", "customer", "department", "profile", "bucket", "workspace", "domain", "domainname", "realm"),
        *("container", "dataset", "resource", "release", "repo", "repository", "rdzv", "default env", "run group"),
        *("log group", "log stream", "group id", "endpoint", "addr"),
    )
)
"""What the last words of a key say that its value is the name of."""
_OF_PROGRAMS = frozenset(("nccl", "rccl", "ucx", "fi", "ofi", "cuda", "nvidia", "torch", "pytorch", "python", "ld"))
"""First words of variables that are settings of programs which everybody has."""
_NO_NAMES = frozenset(("tcp", "sha256", "o2ib", "plt"))
_KEYED = re.compile(
    rb"""(?<![\w./-])([A-Za-z_][\w./-]{1,80}+)(?:
    (\\?["']\s*:\s*\\?["'])(?=([^"'\\]{1,200}+))
    |(?:=["']?|:(?!//)|[ \t]{0,8}:[ \t]{1,8}(?=\S+\s*?$))
    ([A-Za-z0-9_][\w.@/-]{0,200}+(?:[ ][A-Z][a-z]{1,20}+(?=\s*?$))?)
    )""",
    re.MULTILINE | re.VERBOSE,
)
"""A key and its value: in JSON, in Python, in the environment, in tags, in what Slurm and PyTorch print."""
_OPTION = re.compile(rb"(?<!\S)--([A-Za-z][\w-]{1,60}+)(?:=|\s{1,4})[\"']?([A-Za-z0-9][\w.@/-]{0,200}+)")
_COMMAND = re.compile(rb"(?:#SBATCH|\b(?:srun|sbatch|salloc|squeue|scancel|kubectl|oc))\s[^\n]{1,2000}")
_SHORT_OPTION = re.compile(rb"\s-([AJpunw])[ =]?([A-Za-z][\w.-]{0,100}+)")
_OBJECT = re.compile(
    rb"\b(?:pods?|jobs?|jobsets?|pytorchjobs?|svc|services?|deployments?|statefulsets?|namespaces?|nodes?|logs)"
    rb"(?:/|\s\\?\")([a-z0-9][a-z0-9.-]{2,250}+)"
)
"""``pods "llama-0"``, ``job/llama``."""
_SAID = re.compile(
    rb"(?:logged in as:?|queued for|(?:session \w{1,20}|password|publickey) for(?: user)?|[Ss]ession \d{1,12} of user"
    rb"|[Uu]ser(?:name)?:)\s['\"]?(?P<user>[A-Za-z_][\w.-]{0,60}+(?!:))(?:\s\((?P<entity>[\w.-]{1,100}+)\))?"
    rb"|(?:View run|Syncing run|kubectl logs|assigned) (?P<name>[A-Za-z0-9][\w./-]{1,250}+)"
    rb"(?: to (?P<node>[\w.-]{2,250}+))?"
    rb"|No module named '(?P<module>[\w.]{2,100}+)|-m (?P<started>[A-Za-z_][\w.]{2,100}+)"
)
_LOGIN = re.compile(
    rb"(?<![\w.@/+=-])([a-z_][\w.-]{0,31}+)@([A-Za-z][\w-]{0,62}+)"
    rb"(?=[\w.-]{0,200}+(?::[~/ ]|\s?[$#%](?:\s|$)|'s\b|\s|$))"
)
"""``ann@login01:~$``, ``scp ann@login01:/data``."""
_PODS = re.compile(rb"\[pod/([^/\]\s]{1,200})/([^\]\s]{1,200})\]")
_FILES = re.compile(rb"log[/.](?:containers|pods)[/.]([a-z0-9.-]{1,253})_([a-z0-9.-]{1,253})_([a-z0-9.-]{1,253})")
"""Pod, namespace and container in the name of a log of Kubernetes."""
_HOMES = re.compile(rb"(?:/(?:home|Users)/|\\Users\\{1,2})([A-Za-z_][\w.-]{0,60}+)")
_INNER = ("internal", "local", "corp", "lan", "intra")
_TOP = rb"\.(?:com|org|net|edu|gov|io|ai|cloud|dev|internal|local|corp|lan|intra|example)(?![\w-])(?!\.\w)"
_DOMAIN = re.compile(rb"(?<![\w.-])[\w-]{1,63}+(?:\.[\w-]{1,63}+){0,5}" + _TOP, re.IGNORECASE)
_DOMAIN_END = re.compile(_TOP, re.IGNORECASE)
"""To look for it alone takes a twentieth of the time."""
_BUCKET = re.compile(rb"\b(?:s3a?|gs|abfss?|wasbs?|r2|oss)://([\w.-]{2,200}+)|arn:[\w-]{1,12}:s3:::([\w.-]{2,200}+)")
_ARN = re.compile(rb"arn:[\w-]{1,12}:[\w-]{0,40}:[\w-]{0,20}:\d*:([\w/.:-]{2,300}+)")
_IMAGE = re.compile(
    rb"(?<![\w./-])(?:[\w-]{1,63}+(?:\.[\w-]{1,63}+){1,6}(?::\d{1,5})?/)?((?:[a-z0-9][\w-]{1,100}+/){1,5})"
    rb"([a-z0-9][\w-]{1,100}+)(?:@sha256|:(?:v?\d|latest)[\w.-]{0,100})"
)
"""``nvcr.io/acme/nemo:24.05``, ``acme/train:1.2``."""
_ACCOUNT = re.compile(rb"(?<!\d)\d{12}(?=\.dkr\.ecr\b|:)|(?i:account[\w ]{0,20}[=: ]+)(\d{12})(?!\d)")
_PATH = re.compile(rb"/(?<![\w.>\])/]/)[\w.+@%=~#-]{1,100}+(?:/[\w.+@%=~#-]{1,100}+)++")
_ADDRESS = re.compile(rb"(?:://(?:[^\s/@]{1,200}+@)?|git@)([\w.-]{1,250}+)(?::\d{1,5}+)?[/:]([\w.@/+-]{2,300}+)")
_SIGNS: dict[re.Pattern[bytes], tuple[bytes, ...]] = {
    _OPTION: (b"--",),
    _COMMAND: (b"#SBATCH", b"srun ", b"sbatch ", b"salloc ", b"squeue ", b"scancel ", b"kubectl "),
    _SAID: (
        *(b"logged in", b"queued for", b" for ", b"of user", b"ser: ", b"sername: ", b" run ", b"kubectl logs"),
        *(b"assigned ", b"No module", b"-m "),
    ),
    _LOGIN: (b"@",),
    _BUCKET: (b"://", b"arn:"),
    _ADDRESS: (b"://", b"git@"),
    _ARN: (b"arn:",),
    _IMAGE: (b"sha256", b"mage", b"docker", b"registry", b"pull", b":latest", b".io/", b".dev/", b".com/"),
    _ACCOUNT: (b"ccount", b"ACCOUNT", b".dkr.", b"arn:"),
    _PODS: (b"[pod/",),
    _OBJECT: (b"pod", b"job", b"svc", b"service", b"deployment", b"statefulset", b"namespace", b"node", b"logs"),
    _HOMES: (b"/home/", b"/Users/", b"\\Users\\"),
    _FILES: (b"containers", b"pods"),
}
"""One of these is in each text in which the pattern finds something: looking for them takes less time."""
_WORD = re.compile(r"[A-Za-z0-9_][\w.@-]*")
_SIMPLE = re.compile(r"[A-Za-z]{5,}")


@dataclass(slots=True)
class Learned:
    """Names by what they are of."""

    users: set[str] = field(default_factory=set)
    hosts: set[str] = field(default_factory=set)
    """Where a name is one though it be made of common words: ``gpu-17``."""
    labels: set[str] = field(default_factory=set)
    expressions: set[str] = field(default_factory=set)
    """Host lists in brackets, if one of their hosts is known."""
    accounts: set[str] = field(default_factory=set)
    _paths: set[bytes] = field(default_factory=set)

    def learn(self, text: bytes) -> None:
        """Take names out of a part of a log."""
        self._learn_by_key(text)
        self._learn_messages(text)
        for name in set(_DOMAIN.findall(text)) if _DOMAIN_END.search(text) else ():
            self._learn_domain(decode(name))
        for pattern in (_BUCKET, _ARN, _IMAGE, _PODS, _FILES, _OBJECT):
            for match in _finds(pattern, text):
                for name in filter(None, match.groups()):
                    self._learn_value("label", name)
        self.accounts.update(decode(match[1] or match[0]) for match in _finds(_ACCOUNT, text))
        for listed in stated_lists(text):
            self.hosts.update(split_hosts(decode(listed)))
        self.expressions.update(map(decode, bracket_expressions(text)))
        for match in _finds(_ADDRESS, text):
            host, path = decode(match[1]), decode(match[2])
            if host not in PUBLIC_HOSTS and not PUBLIC_PLACES.match(f"{host}/{path}"):
                self._learn_path(f"/{path}/")
        for path in set(_PATH.findall(text)) - self._paths:
            self._learn_path(decode(path))
            self._paths.add(path)

    def _learn_by_key(self, text: bytes) -> None:
        for key, _, quoted, bare in set(_KEYED.findall(text)):
            self._learn_value(find_kind(key), quoted or bare)
        for match in _finds(_OPTION, text):
            self._learn_value(find_kind(match[1]), match[2])
        for command in _finds(_COMMAND, text):
            for letter, value in _SHORT_OPTION.findall(command[0]):
                self._learn_value({b"u": "user", b"w": "host"}.get(letter, "label"), value)

    def _learn_value(self, kind: str, value: bytes) -> None:
        if not kind:
            return
        names = words(decode(value))
        (self.users if kind == "user" else self.labels).update(names)
        if kind == "host":
            self.hosts.update(names)

    def _learn_messages(self, text: bytes) -> None:
        for match in _finds(_SAID, text):
            if match["user"]:
                self.users.add(decode(match["user"]))
            for group in ("entity", "name", "node"):
                self._learn_value("label", match[group] or b"")
            if module := match["module"] or match["started"]:
                self._learn_package(decode(module).partition(".")[0])
        for match in _finds(_LOGIN, text):
            if decode(match[2]).lower() not in _NO_NAMES:
                self.users.add(decode(match[1]))
                self.labels.add(decode(match[2]))
        self.users.update(decode(match[1]) for match in _finds(_HOMES, text))

    def _learn_domain(self, name: str) -> None:
        """Learn whose a domain is from the name before its last part: ``acme`` of ``gpu-1.cluster.acme.internal``."""
        public = PUBLIC_HOSTS
        parts = name.split(".")
        if parts[-1] in _INNER and any(map(str.isdigit, parts[0])):
            self.hosts.add(parts[0])
        if name.lower() not in public and ".".join(name.lower().split(".")[-2:]) not in PUBLIC_DOMAINS:
            owner = name.split(".")[-2]
            if len(owner) > 3:
                self.labels.add(owner)

    def _learn_path(self, path: str) -> None:
        if path.startswith(KEPT_ROOTS):
            return
        parts = path.split("/")
        packages = [at for at, part in enumerate(parts) if part in ("site-packages", "dist-packages")]
        if packages:
            self._learn_package("".join(parts[packages[-1] + 1 : packages[-1] + 2]))
            parts = parts[: packages[-1]]
        self.labels.update(
            part.removesuffix(".git")
            for part in parts[:-1]
            if _SIMPLE.fullmatch(part.removesuffix(".git").replace("-", "").replace("_", ""))
        )

    def _learn_package(self, name: str) -> None:
        if name not in LIBRARIES and len(name) > 3 and "." not in name:
            self.labels.add(name)


def _finds(pattern: re.Pattern[bytes], text: bytes) -> Iterator[re.Match[bytes]]:
    signs = _SIGNS.get(pattern)
    return pattern.finditer(text) if signs is None or any(sign in text for sign in signs) else iter(())


@cache
def find_kind(key: bytes) -> str:
    """Return what a key says that its value is: ``user``, ``host``, another ``label``, or nothing of that."""
    parts = re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+", decode(key))
    parts = [part.lower() for part in parts]
    if not parts or (parts[0] in _OF_PROGRAMS and len(parts) > 1):
        return ""
    if " ".join(parts[-2:]) in _SUBJECTS:
        return "label"
    if len(parts) > 1 and parts[-1] in ("name", "id"):
        parts.pop()
    last = parts[-1]
    if last in _USERS:
        return "user"
    if last in _HOSTS:
        return "host"
    return "label" if last in _SUBJECTS or " ".join(parts[-2:]) in _SUBJECTS or parts[0] == "kube" else ""


def words(label: str) -> list[str]:
    """Return the names in a label: ``pod/llama-0/trainer``, ``ml › llama-0``."""
    parts = re.split(r"[\s/,=():›]+", label)
    return [word for word in parts if len(word) > 1 and _WORD.fullmatch(word) and not word.isdigit()]
