"""A scripted model on loopback, in the protocols of OpenAI (chat completions and responses), Anthropic and Gemini.

It calls one tool after the other and keeps what the model receives: the step of a conversation is the number of tool results in
it, so that repetitions and requests beside the conversation (titles, summaries) change nothing.
"""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def texts(content):
    """The text of a result in any of the forms that agents send."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "".join(texts(part) for part in content)
    if isinstance(content, dict):
        for member in ("text", "output", "content"):
            if member in content:
                return texts(content[member])
    return json.dumps(content, ensure_ascii=False)


class Model:
    """Takes the steps `(tool, arguments)`. `before(step)` is called once before each, and before the end."""

    def __init__(self, steps, before=lambda step: None):
        self.steps, self.before = steps, before
        self.results, self.offered, self.others, self.problems, self.offered_bytes = [], [], [], [], 0
        self.lock, self.prepared, self.threads = threading.Lock(), -1, {}
        model = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *args):
                pass

            def do_GET(self):
                self.answer("application/json", json.dumps({"object": "list", "data": [{"id": "scripted", "object": "model"}]}))

            def do_POST(self):
                size = int(self.headers.get("content-length") or 0)
                body = json.loads(self.rfile.read(size) or b"{}")
                try:
                    kind, text = model.answer(self.path, body)
                except Exception as error:  # Shown by the test instead of a stopped agent.
                    model.problems.append(f"{self.path}: {error!r}")
                    kind, text = "application/json", "{}"
                self.answer(kind, text)

            def answer(self, kind, text):
                data = text.encode()
                self.send_response(200)
                self.send_header("content-type", kind)
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def answer(self, path, body):
        path = path.split("?")[0]
        if path.endswith("/count_tokens") or path.endswith(":countTokens"):
            return "application/json", json.dumps({"input_tokens": 1, "totalTokens": 1})
        for suffix, protocol in [
            ("/chat/completions", Chat), ("/responses", Responses), ("/messages", Messages),
            (":streamGenerateContent", Gemini), (":generateContent", Gemini),
        ]:
            if path.endswith(suffix):
                protocol = protocol(self.whole(body), is_stream=body.get("stream") or "stream" in suffix)
                kind, text = protocol.answer(*self.next(protocol))
                if "thread" in body:
                    self.threads[protocol.message_id] = protocol.body
                return kind, text
        raise ValueError("no such protocol")

    def whole(self, body):
        """A request with what the provider holds of its conversation: Anthropic's own runner sends the new messages alone, and its tools
        once."""
        thread = body.get("thread") or {}
        if thread.get("type") != "continue":
            return body
        held = self.threads[thread["previous_message_id"]]
        return {**held, **body, "messages": [*held["messages"], *body["messages"]]}

    def next(self, protocol):
        """The next call, as the agent names the tool, or the text at the end."""
        names = protocol.tools()
        results = protocol.results()
        with self.lock:
            ours = sorted((name for name in names if name.endswith(self.steps[0][0])), key=lambda name: "workspaced" not in name)
            if not ours:
                self.others.append(names)
                return "title", None
            self.offered, self.offered_bytes = names, len(json.dumps(protocol.body["tools"], ensure_ascii=False, separators=(",", ":")).encode())
            if len(results) > len(self.results):
                self.results = results
            step = len(results)
            if step > self.prepared:
                self.prepared = step
                self.before(step)
        if step >= len(self.steps):
            return "The script is at its end.", None
        tool, arguments = self.steps[step]
        prefix = ours[0].removesuffix(self.steps[0][0])
        name = next((name for name in names if name == prefix + tool), None)
        if name is None:
            self.problems.append(f"{tool} is not offered among {names}")
            return "The script is at its end.", None
        return None, (name, arguments, f"call_{step}")


class Protocol:
    def __init__(self, body, is_stream):
        self.body, self.is_stream = body, is_stream

    def events(self, events, with_names=True):
        lines = []
        for event in events:
            if with_names:
                lines.append(f"event: {event['type']}\n")
            lines.append(f"data: {json.dumps(event)}\n\n")
        return "text/event-stream", "".join(lines)


class Chat(Protocol):
    def tools(self):
        return [tool["function"]["name"] for tool in self.body.get("tools") or []]

    def results(self):
        return [texts(message["content"]) for message in self.body["messages"] if message["role"] == "tool"]

    def answer(self, text, call):
        delta = {"role": "assistant", "content": text}
        if call:
            name, arguments, call_id = call
            function = {"name": name, "arguments": json.dumps(arguments)}
            delta["tool_calls"] = [{"index": 0, "id": call_id, "type": "function", "function": function}]
        reason = "tool_calls" if call else "stop"
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        base = {"id": "chat_1", "created": 1, "model": self.body.get("model", "scripted")}
        if not self.is_stream:
            choice = {"index": 0, "message": delta, "finish_reason": reason}
            return "application/json", json.dumps({**base, "object": "chat.completion", "choices": [choice], "usage": usage})
        chunk = {**base, "object": "chat.completion.chunk"}
        kind, stream = self.events([
            {**chunk, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]},
            {**chunk, "choices": [{"index": 0, "delta": {}, "finish_reason": reason}], "usage": usage},
        ], with_names=False)
        return kind, stream + "data: [DONE]\n\n"


class Responses(Protocol):
    def tools(self):
        names = []
        for tool in self.body.get("tools") or []:
            if tool.get("type") == "namespace":
                names += [tool["name"] + inner["name"] for inner in tool["tools"]]
                self.namespace = tool["name"]
            elif "name" in tool or tool["type"] == "apply_patch":
                names.append(tool.get("name", "apply_patch"))
        return names

    def results(self):
        items = self.body.get("input")
        items = items if isinstance(items, list) else []
        return [texts(item["output"]) for item in items if item.get("type") in ("function_call_output", "apply_patch_call_output")]

    def answer(self, text, call):
        if call:
            name, arguments, call_id = call
            item = {"type": "function_call", "id": f"fc_{call_id}", "call_id": call_id, "name": name,
                    "arguments": json.dumps(arguments), "status": "completed"}
            namespace = getattr(self, "namespace", None)
            if namespace and name.startswith(namespace):
                item |= {"name": name[len(namespace):], "namespace": namespace}
            if name == "apply_patch" and {"type": "apply_patch"} in self.body["tools"]:
                item = {"type": "apply_patch_call", "id": f"apc_{call_id}", "call_id": call_id, "status": "completed", "operation": arguments}
        else:
            part = {"type": "output_text", "text": text, "annotations": []}
            item = {"type": "message", "id": "msg_1", "role": "assistant", "content": [part], "status": "completed"}
        usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2,
                 "input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
        response = {"id": "resp_1", "object": "response", "created_at": 1, "model": "scripted", "status": "completed",
                    "output": [item], "usage": usage}
        if not self.is_stream:
            return "application/json", json.dumps(response)
        return self.events([
            {"type": "response.created", "response": {**response, "status": "in_progress", "output": []}},
            {"type": "response.output_item.added", "output_index": 0, "item": item},
            {"type": "response.output_item.done", "output_index": 0, "item": item},
            {"type": "response.completed", "response": response},
        ])


class Messages(Protocol):
    @property
    def message_id(self):
        return f"msg_{len(self.body['messages'])}"

    def tools(self):
        return [tool["name"] for tool in self.body.get("tools") or []]

    def results(self):
        found = []
        for message in self.body["messages"]:
            if isinstance(message["content"], list):
                parts = [part for part in message["content"] if part.get("type") == "tool_result"]
                found += [texts(part.get("content", "")) for part in parts]
        return found

    def answer(self, text, call):
        if call:
            name, arguments, call_id = call
            block = {"type": "tool_use", "id": call_id, "name": name, "input": {}}
            deltas = [{"type": "input_json_delta", "partial_json": json.dumps(arguments)}]
        else:
            block, deltas = {"type": "text", "text": ""}, [{"type": "text_delta", "text": text}]
        reason = "tool_use" if call else "end_turn"
        usage = {"input_tokens": 1, "output_tokens": 1}
        message = {"id": self.message_id, "type": "message", "role": "assistant", "model": self.body.get("model", "scripted"),
                   "content": [], "stop_reason": None, "stop_sequence": None, "usage": usage}
        if not self.is_stream:
            whole = {**block, "input": call[1]} if call else {**block, "text": text}
            return "application/json", json.dumps({**message, "content": [whole], "stop_reason": reason})
        return self.events([
            {"type": "message_start", "message": message},
            {"type": "content_block_start", "index": 0, "content_block": block},
            *({"type": "content_block_delta", "index": 0, "delta": delta} for delta in deltas),
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": None}, "usage": usage},
            {"type": "message_stop"},
        ])


class Gemini(Protocol):
    def tools(self):
        declared = (tool.get("functionDeclarations") or [] for tool in self.body.get("tools") or [])
        return [function["name"] for functions in declared for function in functions]

    def results(self):
        parts = (part for content in self.body["contents"] for part in content.get("parts") or [])
        return [texts(part["functionResponse"]["response"]) for part in parts if "functionResponse" in part]

    def answer(self, text, call):
        part = {"text": text} if call is None else {"functionCall": {"name": call[0], "args": call[1], "id": call[2]}}
        answer = {
            "candidates": [{"content": {"role": "model", "parts": [part]}, "finishReason": "STOP", "index": 0}],
            "usageMetadata": {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2},
        }
        if not self.is_stream:
            return "application/json", json.dumps(answer)
        return self.events([answer], with_names=False)
