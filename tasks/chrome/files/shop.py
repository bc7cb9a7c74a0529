"""A shop with one form: it serves the page, and lists the orders that it received for requests with its key.

An order is accepted only with the page's token and the headers that a browser sends with a form.
"""

from __future__ import annotations

import json
import os
import secrets
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar
from urllib.parse import parse_qs

PORT = 8000
MAX_FORM_BYTES = 10_000
PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>T-shirt order</title><link rel="icon" href="data:,">
<style>body{{font:18px sans-serif;margin:40px;max-width:600px}}label{{display:block;margin:16px 0}}
input,select{{font:inherit}}button{{font:inherit;padding:8px 24px}}</style></head>
<body><h1>T-shirt order</h1>
<form method="post" action="/order" autocomplete="off"><label>Name <input name="name" size="30"></label>
<label>Size <select name="size"><option>S<option>M<option>L<option>XL</select></label>
<label><input type="checkbox" name="gift" value="yes"> Wrap it as a gift</label>
<input type="hidden" name="token" value="{token}"><button>Order</button></form></body></html>
"""
THANKS = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Ordered</title><link rel="icon" href="data:,"></head>
<body><p>Thank you for your order.</p></body></html>
"""


class Shop(BaseHTTPRequestHandler):
    """Answers requests for the page, the orders and the list of them."""

    key = ""
    token = secrets.token_hex(16)
    orders: ClassVar[list[dict[str, str]]] = []

    def do_GET(self) -> None:
        """Send the page, the thanks, or the orders to a request with the key."""
        if self.path == "/orders" and secrets.compare_digest(self.headers.get("X-Key", ""), self.key):
            listed = "".join(f"{json.dumps(order, sort_keys=True)}\n" for order in self.orders)
            self._send(200, listed, "text/plain")
        elif self.path in ("/", "/thanks"):
            self._send(200, THANKS if self.path == "/thanks" else PAGE.format(token=self.token))
        else:
            self._send(404, "Not found\n", "text/plain")

    def do_POST(self) -> None:
        """Keep an order from the page."""
        size = min(int(self.headers.get("Content-Length") or 0), MAX_FORM_BYTES)
        fields = {
            name: values[-1].strip() for name, values in parse_qs(self.rfile.read(size).decode()).items()
        }
        sent_by = self.headers.get("Sec-Fetch-Site"), self.headers.get("Sec-Fetch-Mode")
        if (
            self.path != "/order"
            or sent_by != ("same-origin", "navigate")
            or fields.get("token") != self.token
        ):
            self._send(403, "Orders are sent from their page.\n", "text/plain")
            return
        self.orders.append({name: fields.get(name, "") for name in ("gift", "name", "size")})
        self.send_response(303)
        self.send_header("Location", "/thanks")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _send(self, status: int, text: str, kind: str = "text/html") -> None:
        data = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""


def main() -> None:
    """Read the key, and return when the port is open; a child process answers there."""
    key = Path(sys.argv[1])
    Shop.key = key.read_text(encoding="utf-8").strip()
    server = ThreadingHTTPServer(("127.0.0.1", PORT), Shop)
    if os.fork():
        os._exit(0)
    os.setsid()
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(nowhere, stream)
    server.serve_forever()


if __name__ == "__main__":
    main()
