"""Names in the source of a verifier: modules that it imports, files that it may read. Pure; runs nothing."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

LIBRARY = (
    "argparse", "array", "ast", "base64", "binascii", "bisect", "calendar", "cmath", "codecs",
    "collections", "collections.abc", "colorsys", "configparser", "contextlib", "copy", "csv",
    "dataclasses", "datetime", "decimal", "difflib", "email", "email.message", "email.parser",
    "email.policy", "email.utils", "enum", "fnmatch", "fractions", "functools", "glob", "gzip", "hashlib",
    "heapq", "hmac", "html", "html.parser", "io", "itertools", "json", "locale", "logging", "math",
    "mimetypes", "numbers", "operator", "os", "os.path", "pathlib", "plistlib", "pprint", "random", "re",
    "secrets", "shlex", "shutil", "sqlite3", "stat", "statistics", "string", "struct", "sys", "tarfile",
    "tempfile", "textwrap", "threading", "time", "traceback", "types", "typing", "unicodedata",
    "urllib.parse", "uuid", "warnings", "wave", "xml", "xml.dom.minidom", "xml.etree",
    "xml.etree.ElementTree", "zipfile", "zlib",
)  # fmt: skip
"""Modules of Python's own library that a verifier may import."""
PACKAGES = {
    "PIL": "pillow", "PIL.Image": "pillow", "docx": "python-docx", "lxml": "lxml", "lxml.etree": "lxml",
    "numpy": "numpy", "openpyxl": "openpyxl", "pptx": "python-pptx", "pypdf": "pypdf",
}  # fmt: skip
"""Packages that a verifier may import if the host has them: modules with the names of their distributions."""
_PATH = re.compile(r"/(?:[\w.@+, -]+/)*[\w.@+, -]+")
_NOT_FILES = ("/workspace/", "/bin/", "/usr/bin/", "/dev/", "/proc/", "/sys/")


class VerifierUnreadable(ValueError):
    """The source is not Python, or its function is missing or has other parameters."""


def parse_verifier(source: str, name: str) -> ast.Module:
    """Parse the source of a verifier.

    Raises:
        VerifierUnreadable: It is not Python.
    """
    try:
        return ast.parse(source, name)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise VerifierUnreadable(f"{name} is not valid Python: {error}") from None


def needed_modules(tree: ast.Module) -> list[str]:
    """Return the modules that the source imports outside of a ``try`` block, in order and once each."""
    return list(dict.fromkeys(_imports(tree, tried=False)))


def _imports(node: ast.AST, *, tried: bool) -> Iterator[str]:
    if isinstance(node, ast.Import) and not tried:
        yield from (alias.name for alias in node.names)
    if isinstance(node, ast.ImportFrom) and not tried and node.module and not node.level:
        yield node.module
    handled = {id(part) for part in node.body} if isinstance(node, ast.Try) else set()
    for child in ast.iter_child_nodes(node):
        yield from _imports(child, tried=tried or id(child) in handled)


def named_paths(tree: ast.Module) -> list[str]:
    """Return the texts of the source that are absolute paths of files in a desktop."""
    texts = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)]
    return paths_among(text for text in texts if isinstance(text, str))


def paths_among(texts: Iterator[str]) -> list[str]:
    """Return the texts that are absolute paths of files in a desktop, once each."""
    found = (text for text in texts if len(text) < 400 and _PATH.fullmatch(text))
    return list(dict.fromkeys(path for path in found if not path.startswith(_NOT_FILES)))


def function_of(tree: ast.Module, name: str) -> ast.FunctionDef:
    """Return the definition of a verifier's function.

    Raises:
        VerifierUnreadable: It is missing, or has other than one to three parameters.
    """
    found = next((n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == name), None)
    if found is None:
        raise VerifierUnreadable(f"the verifier has no function {name}")
    required = len(found.args.args) - len(found.args.defaults)
    if not found.args.args or required > 3 or any(d is None for d in found.args.kw_defaults):
        raise VerifierUnreadable(f"the function {name} must have one to three parameters")
    return found
