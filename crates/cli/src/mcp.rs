//! `mcp`: a bridge from standard input and output to `/mcp` of a service.
//!
//! Each line of standard input is one JSON-RPC message, and is sent as one request. The service keeps no session, so that
//! messages may be sent at the same time, and a cancellation overtakes the call that it cancels.

use std::io::{self, BufRead as _, Read as _, Write as _};
use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use futures_util::TryStreamExt as _;
use hyper::header::HeaderName;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use workspaced_client::{Client, Error};

use crate::connection::{Address, Env, connect};
use crate::error::CliError;
use crate::escape::escape_line;

/// The most bytes of a message.
const MAX_MESSAGE_BYTES: u64 = 64 << 20;
/// The most requests that are under way at the same time.
const MAX_REQUESTS: usize = 64;
/// The code of errors that are not of the protocol, from the range that JSON-RPC leaves to servers.
const SERVER_ERROR: i64 = -32000;
/// Where a message of a protocol version without handshake has its version.
const META_VERSION: &str = "io.modelcontextprotocol/protocolVersion";

static PROTOCOL_VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
static METHOD: HeaderName = HeaderName::from_static("mcp-method");
static NAME: HeaderName = HeaderName::from_static("mcp-name");

/// Arguments of `mcp`. The token is that of a run.
#[derive(Debug, clap::Args)]
pub struct McpArgs {
    #[command(flatten)]
    address: Address,
}

/// What the messages of a bridge share.
struct Bridge {
    client: Client,
    /// The version that the service chose in the handshake.
    version: Mutex<Option<String>>,
}

/// Runs `mcp` until standard input ends and what is under way is answered.
pub(super) async fn run(args: McpArgs, env: &Env<'_>) -> Result<(), CliError> {
    let bridge = Arc::new(Bridge { client: connect(&args.address, env)?, version: Mutex::new(None) });
    let (sender, mut lines) = mpsc::channel(1);
    std::thread::spawn(move || read_lines(&sender));
    let mut requests = JoinSet::new();
    loop {
        let line = tokio::select! {
            line = lines.recv() => line,
            Some(done) = requests.join_next() => {
                finished(done)?;
                continue;
            }
        };
        let Some(line) = line else { break };
        let line = line?;
        let message = match serde_json::from_str::<Value>(&line) {
            Ok(message) => message,
            Err(error) => {
                let parse_error = json!({"code": -32700, "message": format!("not JSON: {error}")});
                let id = model::json::id_of_invalid(line.as_bytes());
                print(&json!({"jsonrpc": "2.0", "id": id, "error": parse_error}).to_string())?;
                continue;
            }
        };
        if requests.len() >= MAX_REQUESTS && message.get("id").is_some() {
            let text = format!("more than {MAX_REQUESTS} requests at the same time");
            bridge.fail(&message, &json!({"code": SERVER_ERROR, "message": text}))?;
            continue;
        }
        let bridge = Arc::clone(&bridge);
        requests.spawn(async move { bridge.forward(line, &message).await });
    }
    while let Some(done) = requests.join_next().await {
        finished(done)?;
    }
    Ok(())
}

/// Returns the error of a request that could not be answered on standard output.
fn finished(done: Result<io::Result<()>, tokio::task::JoinError>) -> Result<(), CliError> {
    Ok(done.map_err(|error| CliError::Failed(error.to_string()))??)
}

/// Sends each line of standard input, on a thread of its own: a read cannot be cancelled, and may never end.
fn read_lines(sender: &mpsc::Sender<io::Result<String>>) {
    let mut input = io::stdin().lock();
    loop {
        let mut line = String::new();
        let read = match (&mut input).take(MAX_MESSAGE_BYTES + 1).read_line(&mut line) {
            Ok(0) => return,
            Ok(bytes) if bytes as u64 > MAX_MESSAGE_BYTES => {
                Err(io::Error::other(format!("a message has more than {MAX_MESSAGE_BYTES} bytes")))
            }
            Ok(_) if line.trim().is_empty() => continue,
            Ok(_) => Ok(line),
            Err(error) => Err(error),
        };
        let is_last = read.is_err();
        if sender.blocking_send(read).is_err() || is_last {
            return;
        }
    }
}

impl Bridge {
    /// Sends a message and prints the messages of its answer.
    async fn forward(&self, line: String, message: &Value) -> io::Result<()> {
        match self.answer(line, message).await {
            Ok(()) => Ok(()),
            Err(CliError::Output(error)) => Err(error),
            Err(CliError::Client(Error::Problem(problem))) => {
                let text = problem.to_string();
                self.fail(message, &json!({"code": SERVER_ERROR, "message": text, "data": problem.to_json()}))
            }
            Err(error) => self.fail(message, &json!({"code": SERVER_ERROR, "message": error.to_string()})),
        }
    }

    async fn answer(&self, line: String, message: &Value) -> Result<(), CliError> {
        let mut answers = std::pin::pin!(self.client.send_mcp(line, &self.headers(message)).await?);
        while let Some(answer) = answers.try_next().await? {
            let mut parsed = serde_json::from_str::<Value>(&answer).unwrap_or_default();
            if let Some(version) = parsed["result"]["protocolVersion"].as_str() {
                *self.version.lock() = Some(version.to_owned());
            }
            // The ID of a request that the service refused before it read it.
            let is_nameless = parsed.get("error").is_some() && parsed.get("id").is_none_or(Value::is_null);
            match message.get("id").filter(|_| is_nameless) {
                Some(id) => {
                    parsed["id"] = id.clone();
                    print(&parsed.to_string())?;
                }
                None => print(&answer)?,
            }
        }
        Ok(())
    }

    /// The headers that the protocol asks for: its version, and the method and the name that the message has.
    fn headers(&self, message: &Value) -> Vec<(HeaderName, String)> {
        let params = &message["params"];
        let version = params["_meta"][META_VERSION].as_str().map(str::to_owned).or_else(|| self.version.lock().clone());
        let method = message["method"].as_str();
        let name = match method {
            Some("tools/call" | "prompts/get") => params["name"].as_str(),
            Some("resources/read") => params["uri"].as_str(),
            _ => None,
        };
        let headers = [(&PROTOCOL_VERSION, version), (&METHOD, method.map(header)), (&NAME, name.map(header))];
        headers.into_iter().filter_map(|(name, value)| Some((name.clone(), value?))).collect()
    }

    /// Answers a request with an error. Nobody waits for the answer to a notification, so that its error is logged.
    #[expect(clippy::unused_self, reason = "an answer belongs to its bridge")]
    fn fail(&self, message: &Value, error: &Value) -> io::Result<()> {
        match message.get("id") {
            Some(id) => print(&json!({"jsonrpc": "2.0", "id": id, "error": error}).to_string()),
            None => writeln!(io::stderr(), "workspaced: {}", escape_line(&error.to_string())),
        }
    }
}

/// Returns a value of a header, encoded as the protocol defines it if it is not visible ASCII.
fn header(value: &str) -> String {
    let is_plain = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_graphic()) && !value.starts_with("=?");
    if is_plain { value.to_owned() } else { format!("=?base64?{}?=", BASE64_STANDARD.encode(value)) }
}

/// Prints a message on one line. Ends of lines occur in JSON between tokens only.
fn print(message: &str) -> io::Result<()> {
    let mut line = message.replace(['\n', '\r'], " ");
    line.push('\n');
    let mut output = io::stdout().lock();
    output.write_all(line.as_bytes())?;
    output.flush()
}
