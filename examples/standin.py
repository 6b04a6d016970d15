"""A stand-in for a model's HTTP API, so that the examples need no key: it listens on 127.0.0.1 and answers by rule.

With OPENAI_API_KEY set, `client()` talks to the real one instead; OPENAI_MODEL names the model.
"""

import json
import os
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import openai

MODEL = os.environ.get("OPENAI_MODEL", "gpt-4o-mini")


def client() -> openai.OpenAI:
    if os.environ.get("OPENAI_API_KEY"):
        return openai.OpenAI()
    server = ThreadingHTTPServer(("127.0.0.1", 0), StandIn)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    os.environ["NO_PROXY"] = "127.0.0.1"
    return openai.OpenAI(api_key="none", base_url=f"http://127.0.0.1:{server.server_port}/v1")


def answer(messages: list[dict[str, Any]]) -> str:
    """Always the same for the same conversation."""
    said = " ".join(message["content"] for message in messages if message["role"] != "assistant")
    city = (re.findall(r"Tokyo|Osaka|Kyoto", said) or ["Tokyo"])[-1]
    days = int((re.findall(r"(\d+) days", said) or ["3"])[-1])
    night = {"Tokyo": 120, "Osaka": 80, "Kyoto": 95}[city]
    match messages[-1]["content"].lower():
        case text if "hotel" in text:
            return f"A quiet one near {city} station: {night} € a night."
        case text if "cost" in text:
            return f"{days} nights at {night} € and the flight for 540 €: {days * night + 540} €."
        case text if "which" in text:
            return f"You chose {city}, for {days} days."
        case _:
            return f"{days} days in {city}: the old town, the market, and a day in the country around it."


class StandIn(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        message = {"role": "assistant", "content": answer(request["messages"])}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        reply = {"id": "1", "object": "chat.completion", "created": 0, "model": MODEL, "choices": [choice]}
        body = json.dumps(reply).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""
