"""Tasks of a browser on the full image: its tabs are opened, read and scored by the debugging protocol."""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator
from typing import Any

import pytest
from tests.support import media_files as media
from tests.support.host_process import HostProcess, running_host

from osgym_host.images.errors import ImageError
from osgym_host.images.store import ImageStore, default_data_dir
from osgym_sdk import AsyncClient, Evaluation

pytestmark = [pytest.mark.desktop, pytest.mark.full_image, pytest.mark.timeout(300)]

SITE = "http://127.0.0.1:8000"
PAGE = (
    "<title>One</title><p class=city>SEA</p><p class=city>NYC</p><form><input value=Ada></form>"
    "<script>document.cookie='k=v; max-age=9999'</script>"
)


def step(kind: str, **parameters: Any) -> dict[str, Any]:
    """A setup step."""
    return {"type": kind, "parameters": parameters}


def rule(**rules: Any) -> dict[str, Any]:
    """An expected value."""
    return {"type": "rule", "rules": rules}


BROWSER = [
    step("upload_file", files=[{"path": "/home/user/site/one.html", "text": PAGE},
                               {"path": "/home/user/site/two.html", "text": "<title>Two</title>two"}]),
    step("launch", command="cd /home/user/site && python3 -m http.server 8000 --bind 127.0.0.1", shell=True),
    step("launch", command=["google-chrome", "--remote-debugging-port=1337"]),
    step("launch", command=["socat", "tcp-listen:9222,fork", "tcp:localhost:1337"]),
]  # fmt: skip


def task(config: list[dict[str, Any]], *checks: tuple[str, dict[str, Any], dict[str, Any]]) -> dict[str, Any]:
    """A task that starts a web server and the browser."""
    func, result, expected = zip(*checks, strict=True)
    evaluator = {"func": list(func), "result": list(result), "expected": list(expected)}
    return {"id": "browser", "instruction": "", "config": [*BROWSER, *config], "evaluator": evaluator}


@pytest.fixture(scope="module")
def full_host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostProcess]:
    """A host with desktops of the full image."""
    try:
        ImageStore(default_data_dir()).resolve("full")
    except ImageError:
        pytest.skip("missing: golden image 'full'")
    folder = tmp_path_factory.mktemp("full")
    with running_host(f"tabs-{os.getpid()}", image="full", warm=1, max_replicas=2, log_dir=folder) as running:
        yield running


async def score(host: HostProcess, made: dict[str, Any], actions: list[dict[str, Any]]) -> Evaluation:
    """Sets up, acts, scores."""
    async with AsyncClient(host.url) as client, client.episode(made) as episode:
        for action in actions:
            await episode.step(action)
        await episode.step({"op": "done"})
        return await episode.evaluate()


async def test_tabs_are_opened_and_read(full_host: HostProcess) -> None:
    """What was opened is there; the last one is in front, with its texts and its address."""
    opened = step("chrome_open_tabs", urls_to_open=[f"{SITE}/two.html", f"{SITE}/one.html?q=a%20b"])
    texts = {"category": "class", "class_multiObject": {"city": {"0": "from", "1": "to"}}}
    inputs = {"category": "input", "inputObject": {"/html/body/form/input[1]": "name"}}
    prefix = {"goto_prefix": "http://"}
    front = f"{SITE}/one.html?q=a%20b"
    made = task(
        [opened],
        ("is_expected_tabs", {"type": "open_tabs_info"}, rule(type="url", urls=[f"{SITE}/two.html", front])),
        ("is_expected_active_tab", {"type": "active_url_from_accessTree", **prefix},
         rule(type="url", url=front)),
        ("is_expected_url_pattern_match", {"type": "active_tab_info"}, rule(expected=["one\\.html"])),
        ("check_direct_json_object", {"type": "active_tab_html_parse", **texts},
         rule(expected={"from": "SEA", "to": "NYC"})),
        ("check_direct_json_object", {"type": "active_tab_html_parse", **inputs},
         rule(expected={"name": "Ada"})),
        ("check_direct_json_object", {"type": "active_tab_url_parse", **prefix, "parse_keys": ["q"]},
         rule(expected={"q": "a b"})),
        ("is_added_to_steam_cart", {"type": "page_info", "url": f"{SITE}/two.html"}, rule(items=["two"])),
    )  # fmt: skip
    found = await score(full_host, made, [])
    assert found.reward == 1.0, found.details


async def test_what_a_policy_did_to_tabs_is_seen(full_host: HostProcess) -> None:
    """A tab that a key closed is gone, and one that the setup closed; the other is in front."""
    urls = [f"{SITE}/one.html", f"{SITE}/two.html", f"{SITE}/two.html?x"]
    setup = [
        step("chrome_open_tabs", urls_to_open=urls),
        step("chrome_close_tabs", urls_to_close=[urls[2]]),
        step("activate_window", window_name="Two"),
    ]
    made = task(
        setup,
        ("is_expected_tabs", {"type": "open_tabs_info"}, rule(type="url", urls=urls[:1])),
        ("is_expected_active_tab", {"type": "active_tab_info"}, rule(type="url", url=urls[0])),
    )
    untouched = await score(full_host, made, [])
    assert untouched.reward == 0.0 and "the open tabs" in str(untouched.details)
    closed = await score(full_host, made, [{"op": "key", "keys": ["ctrl", "w"]}])
    assert closed.reward == 1.0, closed.details


async def test_a_browser_that_is_gone_is_a_wrong_result(full_host: HostProcess) -> None:
    """Its profile can still be read; its tabs cannot, and that is a 0 with the reason."""
    made = task(
        [
            step("chrome_open_tabs", urls_to_open=[f"{SITE}/one.html"]),
            step("close_window", window_name="One"),  # a browser that ends so writes its cookies down at once
            step("execute", command="pgrep -x chrome || echo gone", shell=True, until={"stdout": "gone"}),
            step("execute", command=["pkill", "chrome"]),
            step("sleep", seconds=2),
        ],
        ("is_cookie_deleted", {"type": "cookie_data"}, rule(type="domains", domains=["127.0.0.1"])),
    )
    found = await score(full_host, made, [])
    assert "a cookie of 127.0.0.1 is left" in str(found.details), found.details
    made["evaluator"] = {
        "func": ["check_history_deleted", "exact_match", "is_expected_active_tab"],
        "result": [{"type": "history"}, {"type": "enable_do_not_track"}, {"type": "active_tab_info"}],
        "expected": [
            rule(type="keywords", keywords=["youtube"]),
            rule(expected="false"),
            rule(type="url", url=SITE),
        ],
    }
    found = await score(full_host, made, [])
    assert found.reward == 0.0
    assert "no browser listens" in str(found.details), found.details


async def test_sites_are_asked_behind_clicks(full_host: HostProcess) -> None:
    """Texts and attributes of a page and of the one behind it; the task has what counts without them."""
    linked = "<title>L</title><p id=name>Ada</p><a id=on href=/one.html target=_blank>on</a>"
    files = [{"path": "/home/user/site/linked.html", "text": linked}]
    infos = [
        {"action": "inner_text", "selector": "#name"},
        {"action": "click_and_inner_text", "selector": ["#on", "p.city"]},
        {"action": "attribute", "selector": "#on", "attribute": "href"},
    ]
    asked = {"type": "info_from_website", "url": f"{SITE}/linked.html", "infos": infos}
    gone = [{"action": "inner_text", "selector": "#gone"}]
    made = task(
        [step("upload_file", files=files), step("chrome_open_tabs", urls_to_open=[f"{SITE}/two.html"])],
        ("exact_match", asked, rule(expected=["Ada", "SEA", "/one.html"])),
        ("exact_match", {**asked, "infos": gone, "backups": ["b"]}, rule(expected=["b"])),
        ("check_pdf_pages", {"type": "pdf_from_url", "path": f"{SITE}/one.html"},
         rule(relation="eq", ref_value=1)),
        ("is_expected_tabs", {"type": "open_tabs_info"}, rule(type="url", urls=[f"{SITE}/two.html"])),
    )  # fmt: skip
    found = await score(full_host, made, [])
    assert found.reward == 1.0, found.details


SEARCH = """<title>S</title><input id=hero-search-input>
<button class=nav-search-button>go</button><div id=found></div>
<script>
let typed = "";
document.querySelector("input").addEventListener("input", (event) => { typed = event.target.value; });
const show = (text) => { document.querySelector("#found").innerHTML = text; };
document.querySelector("button").onclick = () => setTimeout(() => { show(
  `<a class=search-result-highlight--success target=_blank href="camp.html?${typed}">found</a>`); }, 300);
</script>"""
CAMP = """<title>C</title><button class=next-available>next</button><table><tr></tr></table>
<script>
document.querySelector("button").onclick = () => setTimeout(() => { document.querySelector("tr").innerHTML =
  `<th class=day>Fri 1</th><th class=day> Sat <b>2</b> of ${location.search} </th>`; }, 300);
</script>"""


async def test_a_site_is_searched_and_read(full_host: HostProcess) -> None:
    """By OSWorld's way through one site: what is typed, found behind two clicks, and shown after a third."""
    files = [{"path": "/home/user/site/search.html", "text": SEARCH},
             {"path": "/home/user/site/camp.html", "text": CAMP}]  # fmt: skip
    wanted = {
        "type": "gotoRecreationPage_and_get_html_content", "selector": "class", "class": "day", "order": "1",
        "url": f"{SITE}/search.html",
    }  # fmt: skip
    shown = "<title>T</title><p class=day>Sat 2 of ?Diamond</p>"
    files += [{"path": "/home/user/site/mine.html", "text": shown}]
    texts = {"category": "class", "class_singleObject": {"day": "day"}}
    made = task(
        [step("upload_file", files=files), step("chrome_open_tabs", urls_to_open=[f"{SITE}/mine.html"])],
        ("check_direct_json_object", {"type": "active_tab_html_parse", **texts}, wanted),
    )
    found = await score(full_host, made, [])
    assert found.reward == 1.0, found.details
    made["evaluator"]["expected"] = [{**wanted, "order": "2"}]
    found = await score(full_host, made, [])
    assert found.reward == 0.0 and "waiting for '.day'" in str(found.details), found.details


async def test_visits_are_put_into_the_history(full_host: HostProcess) -> None:
    """The browser of the image makes the history, the step fills it, and the browser keeps it."""
    visits = [
        {"url": "https://video.example/a", "title": "A", "visit_time_from_now_in_seconds": 3600},
        {"url": "https://news.example/", "title": "N", "visit_time_from_now_in_seconds": 60},
    ]
    made = task([], ("check_history_deleted", {"type": "history"}, rule(type="keywords", keywords=["video"])))
    made["config"] = [step("update_browse_history", history=visits), *made["config"]]
    made["evaluator"]["postconfig"] = [step("execute", command=["pkill", "chrome"]), step("sleep", seconds=1)]
    kept = await score(full_host, made, [])
    assert kept.reward == 0.0 and "video" in str(kept.details), kept.details
    made["evaluator"]["expected"] = [rule(type="keywords", keywords=["never visited"])]
    assert (await score(full_host, made, [])).reward == 1.0


async def test_slides_and_wallpapers_are_read(full_host: HostProcess) -> None:
    """A sound in a presentation, one that it links to, a slide's background, the desktop's own picture."""
    picture = base64.b64encode(media.album_picture()).decode()
    inside, linked = media.wav(media.melody()), "file:///home/user/Desktop/a%20b.wav"
    decks = {
        "inside": media.deck(sound="../media/s.wav", parts={"ppt/media/s.wav": inside}),
        "linked": media.deck(sound=linked),
        "ground": media.deck(picture="../media/p.png", parts={"ppt/media/p.png": media.album_picture()}),
    }
    desktop = "/home/user/Desktop"
    files = [
        {"path": f"{desktop}/{name}.pptx", "data_base64": base64.b64encode(data).decode()}
        for name, data in decks.items()
    ]
    files += [{"path": f"{desktop}/a b.wav", "data_base64": base64.b64encode(inside).decode()}]
    files += [{"path": f"{desktop}/p.png", "data_base64": picture}]
    gold = {"type": "vm_file", "path": f"{desktop}/a b.wav", "dest": "a.wav"}
    ground = {"type": "vm_file", "path": f"{desktop}/p.png", "dest": "p.png"}

    def slide(kind: str, name: str) -> dict[str, Any]:
        return {"type": kind, "ppt_file_path": f"{desktop}/{name}.pptx", "slide_index": 0, "dest": "x"}

    made = task(
        [],
        ("compare_audios", slide("audio_in_slide", "inside"), gold),
        ("compare_audios", slide("audio_in_slide", "linked"), gold),
        ("compare_images", slide("background_image_in_slide", "ground"), ground),
        ("compare_images", {"type": "vm_wallpaper", "dest": "w.png"}, ground),
    )
    made["config"] = [step("upload_file", files=files), step("change_wallpaper", path=f"{desktop}/p.png")]
    found = await score(full_host, made, [])
    assert found.reward == pytest.approx(1.0, abs=1e-6), found.details
    made["evaluator"]["result"][0] = slide("audio_in_slide", "ground")
    wrong = await score(full_host, made, [])
    assert wrong.reward == 0.0 and "has no sound" in str(wrong.details), wrong.details
