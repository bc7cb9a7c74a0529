"""Typing any Unicode exactly into real applications."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.support.guest_rig import Desktop, desktop, until

# no line begins with a space: an editor would carry the indentation on
ASCII = "".join(chr(code) for code in range(0x21, 0x7F)) + " "
TEXTS = {
    "ascii": ASCII * 2 + '<tag attr="x">a && b || c</tag>\nsecond line\tafter tab\n',
    "german": "Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich. «ÄÖÜ» „ß“ €\n",
    "cyrillic": "Съешь же ещё этих мягких французских булок, да выпей чаю. ЭЮЯ ЪЫЬ\n",
    "cjk": "天地玄黃宇宙洪荒日月盈昃辰宿列張寒來暑往秋收冬藏 いろはにほへと 한국어\n",
    "emoji": "😀🎉👩‍💻🇩🇪 é ∀x∈ℝ\n",
    "many": "".join(chr(code) for code in range(0x4E00, 0x4E00 + 150)) + "\n",
}


@pytest.fixture(scope="module")
def screen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desktop]:
    """One desktop for all."""
    with desktop(tmp_path_factory.mktemp("typing")) as made:
        yield made


@pytest.mark.parametrize("name", TEXTS)
def test_a_terminal_gets_exactly_the_text(screen: Desktop, name: str) -> None:
    """What is typed into xterm arrives in the program that reads it, byte for byte."""
    out = screen.home / f"xterm-{name}.txt"
    terminal = screen.open("xterm", "-u8", "-e", "sh", "-c", f"stty -echo -icanon; exec cat > {out}")
    until(out.exists)
    screen.guest.step({"op": "type", "text": TEXTS[name]})
    expected = TEXTS[name].encode()
    until(lambda: len(out.read_bytes()) >= len(expected))
    terminal.kill()
    assert out.read_bytes() == expected


@pytest.mark.parametrize("argv", [["mousepad"], ["featherpad", "--standalone"]], ids=["gtk", "qt"])
@pytest.mark.parametrize("name", TEXTS)
def test_an_editor_gets_exactly_the_text(screen: Desktop, argv: list[str], name: str) -> None:
    """What is typed into an editor is what it saves."""
    file = screen.home / f"{argv[0]}-{name}.txt"
    file.write_text("")
    editor = screen.open(*argv, str(file))
    screen.guest.step({"op": "type", "text": TEXTS[name]})
    screen.guest.step({"op": "key", "keys": ["ctrl", "s"]})
    until(lambda: file.read_bytes())
    editor.kill()
    screen.guest.step({"op": "screenshot"})
    saved = file.read_text(encoding="utf-8")
    # editors end the last line of a file themselves
    assert saved.rstrip("\n") == TEXTS[name].rstrip("\n")
