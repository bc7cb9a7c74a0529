"""The frame of the report page."""

CSS = """
:root { color-scheme: light dark; --bg: #f6f7f9; --fg: #1b1f27; --dim: #667085; --card: #fff;
  --line: #e4e7ec;
  --ok: #12805c; --okbg: #d9f2e6; --mid: #8a5a00; --midbg: #fdf0d0; --bad: #b42318; --badbg: #fde3e0;
  --link: #3557d6; }
@media (prefers-color-scheme: dark) { :root { --bg: #14161b; --fg: #e6e8ee; --dim: #98a2b3; --card: #1d2027;
  --line: #2d323c; --ok: #6fd3a8; --okbg: #153528; --mid: #f0c264; --midbg: #3a2d10; --bad: #f79a90;
  --badbg: #43201d;
  --link: #9db2ff; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--bg); color: var(--fg);
  font: 15px/1.5 system-ui, "Noto Sans", sans-serif; }
main { max-width: 1180px; margin: 0 auto; padding: 28px 24px 64px; }
h1 { font-size: 26px; margin: 0; overflow-wrap: anywhere; } h2 { font-size: 19px; margin: 36px 0 12px; }
header p { color: var(--dim); margin: 4px 0 22px; }
small { color: var(--dim); font-weight: 400; }
a { color: var(--link); text-decoration: none; } a:hover { text-decoration: underline; }
.cards { display: grid; grid-template-columns: repeat(auto-fill, minmax(150px, 1fr)); gap: 12px; }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 12px 14px; }
.card span { color: var(--dim); font-size: 13px; } .card b { display: block; font-size: 24px;
  line-height: 1.25; }
.card small { font-size: 12.5px; }
table { width: 100%; border-collapse: collapse; background: var(--card); border: 1px solid var(--line);
  border-radius: 10px; overflow: hidden; }
th { text-align: left; font-size: 13px; color: var(--dim); font-weight: 500; }
th, td { padding: 9px 12px; border-bottom: 1px solid var(--line); vertical-align: top; }
tr:last-child td { border-bottom: 0; } td small { display: block; max-width: 460px;
  overflow-wrap: anywhere; }
.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.chip { display: inline-block; min-width: 34px; text-align: center; padding: 1px 8px; margin: 1px 3px 1px 0;
  border-radius: 99px; font-size: 13px; font-weight: 600; background: var(--line); color: var(--fg); }
.chip.passed { background: var(--okbg); color: var(--ok); } .chip.missed { background: var(--midbg);
  color: var(--mid); }
.chip.failed { background: var(--badbg); color: var(--bad); }
article { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 14px 18px;
  margin: 0 0 14px; }
h3 { margin: 0; font-size: 16px; overflow-wrap: anywhere; } h3 small { margin-left: 10px; font-size: 13px; }
.task { margin: 6px 0 10px; color: var(--dim); white-space: pre-wrap; overflow-wrap: anywhere; }
.strip { display: grid; grid-template-columns: repeat(auto-fill, minmax(168px, 1fr)); gap: 8px;
  margin: 8px 0; }
.strip a { position: relative; display: block; } .strip img { width: 100%; border-radius: 6px;
  display: block;
  border: 1px solid var(--line); }
.strip small { position: absolute; left: 6px; bottom: 6px; background: #000a; color: #fff;
  border-radius: 4px;
  padding: 0 6px; font-size: 11px; }
.wrong { color: var(--bad); margin: 4px 0; overflow-wrap: anywhere; white-space: pre-wrap; }
.answer { border-left: 3px solid var(--line); padding-left: 12px; margin: 10px 0 2px; white-space: pre-wrap;
  overflow-wrap: anywhere; } .answer span { display: block; color: var(--dim); font-size: 12.5px; }
details { margin-top: 8px; } summary { cursor: pointer; color: var(--link); }
ol { list-style: none; padding: 0; margin: 8px 0 0; }
li { display: grid; grid-template-columns: 40px 1fr; padding: 7px 0; border-top: 1px solid var(--line); }
li p { margin: 0 0 4px; white-space: pre-wrap; overflow-wrap: anywhere; } .thought { color: var(--dim);
  font-style: italic; }
code { display: inline-block; font: 12.5px/1.45 ui-monospace, "DejaVu Sans Mono", monospace;
  background: var(--bg);
  border: 1px solid var(--line); border-radius: 5px; padding: 1px 7px; margin: 1px 4px 1px 0;
  overflow-wrap: anywhere;
  white-space: pre-wrap; }
.late { color: var(--mid); font-size: 12.5px; }
footer { color: var(--dim); margin-top: 30px; font-size: 13px; }
"""
HEAD = """<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy"
  content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<title>{title}</title><style>{css}</style></head><body><main>"""
FOOT = (
    "<footer>A failure has no reward: those of the model count as not passed, those of the infrastructure "
    "and of tasks do not count. Intervals are over tasks. Full frames and every word lie in the folder of "
    "each episode.</footer></main></body></html>"
)
