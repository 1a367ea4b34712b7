"""Serves git repositories over https to callers with one token, and logs each request.

Arguments: the folder of the repositories, which also has cert.pem, key.pem and the files `token`, `log` and, while answers
are held back, `hold`. Prints the port.
"""

import base64, http.server, os, ssl, subprocess, sys, time

folder = sys.argv[1]


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.answer(b"")

    def do_POST(self):
        self.answer(self.rfile.read(int(self.headers["Content-Length"])))

    def answer(self, body):
        token = open(folder + "/token").read().encode()
        given = self.headers.get("Authorization") or ""
        is_known = given == "Basic " + base64.b64encode(b"x-access-token:" + token).decode()
        with open(folder + "/log", "a") as log:
            what = "fetch" if b"command=fetch" in body else "ask"
            log.write(f"{self.command} {self.path} {what} {'known' if is_known else 'given' if given else 'none'}\n")
        while os.path.exists(folder + "/hold"):
            time.sleep(0.01)
        if self.path.startswith("/org/echo.git"):
            # As a proxy that explains why it refuses.
            token = base64.b64decode(given[6:] or b"").decode().partition(":")[2]
            lines = "\n".join(token[at:at + 5] for at in range(0, len(token), 5))
            content = f"denied: {given}\ndenied: {token}\n{lines}\n".encode()
            self.send_response(403)
            self.send_header("Content-Type", "text/plain")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)
            return
        if self.path.startswith("/org/moved.git"):
            self.send_response(302)
            self.send_header("Location", self.path.replace("/org/moved.git", "/other/public.git"))
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        if self.path.startswith("/org/") and not is_known:
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="git"')
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        path, _, query = self.path.partition("?")
        env = {
            "PATH": os.environ["PATH"], "GIT_PROJECT_ROOT": folder + "/repositories", "GIT_HTTP_EXPORT_ALL": "1",
            "PATH_INFO": path, "QUERY_STRING": query, "REQUEST_METHOD": self.command, "GIT_CONFIG_COUNT": "1",
            "GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "*",
            "CONTENT_TYPE": self.headers.get("Content-Type") or "", "CONTENT_LENGTH": str(len(body)),
            "GIT_PROTOCOL": self.headers.get("Git-Protocol") or "",
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding") or "",
        }
        done = subprocess.run(["git", "http-backend"], input=body, env=env, stdout=subprocess.PIPE)
        head, _, content = done.stdout.partition(b"\r\n\r\n")
        lines = dict(line.split(": ", 1) for line in head.decode().split("\r\n") if line)
        self.send_response(int(lines.pop("Status", "200").split()[0]))
        for name, value in lines.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *arguments):
        pass


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *arguments):
        pass


server = Server(("127.0.0.1", 0), Handler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(folder + "/cert.pem", folder + "/key.pem")
server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
print(server.server_address[1], flush=True)
server.serve_forever()
