//! Sign-in of people at a real provider of `OpenID` Connect, and what their sessions may do.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use reqwest::Method;
use rstest::rstest;
use serde_json::{Value, json};

use crate::harness::{Answer, Backend, Server, Setup, client_script, items, sha256, third_party};
use crate::http::dashboard::folder;

/// The provider, with a browser.
pub(crate) struct Provider {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    issuer: String,
}

impl Provider {
    fn start() -> Self {
        let mut node = third_party("node");
        node.arg(client_script("oidc_provider.mjs")).arg(folder());
        let mut process = node.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let (input, output) = (process.stdin.take().unwrap(), process.stdout.take().unwrap());
        let mut provider = Self { process, input, output: BufReader::new(output), issuer: String::new() };
        provider.issuer = provider.line();
        provider
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    fn ask(&mut self, line: &str) -> Value {
        writeln!(self.input, "{line}").unwrap();
        serde_json::from_str(&self.line()).unwrap()
    }

    /// Signs a person in, and returns the last answer of the service.
    fn sign_in(&mut self, server: &Server, login: &str) -> Value {
        self.ask(&format!("{} {login} /runs?state=open", server.base))
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

/// A service at which people sign in, and its provider.
pub(crate) async fn service(backend: Backend) -> (Server, Provider) {
    let provider = Provider::start();
    let mut server = Server::prepare(Setup::new(backend)).await;
    let config = server.home.join("config.toml");
    let text = format!(
        "oauth-issuer = \"{}\"\noauth-audience = \"files\"\n[sign_in]\nclient_id = \"workspaced\"\n\
         client_secret_env = \"CLIENT_SECRET\"\n[sign_in.scopes]\napprove = [\"reviewers\"]\naudit = [\"auditors\"]\n",
        provider.issuer
    );
    std::fs::write(&config, text).unwrap();
    server.setup = server.setup.clone().arg("--config", config.display());
    server.setup = server.setup.clone().env("CLIENT_SECRET", "a secret: of the client");
    server.restart();
    (server, provider)
}

/// The cookie of the session that an answer begins.
fn session(answer: &Value) -> String {
    assert_eq!(answer["status"], 303, "{answer:#}");
    let cookies = answer["cookies"].as_array().unwrap_or_else(|| panic!("{answer:#}"));
    let cookie =
        cookies.iter().filter_map(Value::as_str).find(|cookie| cookie.starts_with("__Host-workspaced-session="));
    let cookie = cookie.unwrap_or_else(|| panic!("{answer:#}"));
    for attribute in ["; Path=/", "; HttpOnly", "; Secure", "; SameSite=Strict"] {
        assert!(cookie.contains(attribute), "{cookie}");
    }
    cookie.split(';').next().unwrap().to_owned()
}

/// Sends a request of the dashboard in the session, with `more` headers.
async fn ask(server: &Server, cookie: &str, method: Method, path: &str, body: Value, more: &[(&str, &str)]) -> Answer {
    let nobody = server.nobody();
    let mut request = nobody.request(method.clone(), path).header("cookie", cookie);
    for (name, value) in more {
        request = request.header(*name, *value);
    }
    if method == Method::POST {
        request = request.json(&body);
    }
    nobody.send(request).await
}

const OF_PAGE: [(&str, &str); 2] = [("workspaced-session", "1"), ("sec-fetch-site", "same-origin")];

async fn get(server: &Server, cookie: &str, path: &str) -> Answer {
    ask(server, cookie, Method::GET, path, Value::Null, &OF_PAGE).await
}

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn a_person_signs_in_at_the_issuer_and_decides_under_the_verified_address(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let (server, mut provider) = service(backend).await;
    let offered = server.nobody().get("/sign-in/issuer").await.ok();
    assert_eq!(offered, json!({"issuer": provider.issuer}));
    let answer = provider.sign_in(&server, "ada");
    assert_eq!(answer["location"], "/runs?state=open", "{answer:#}");
    let first = session(&answer);
    let own = get(&server, &first, "/v1/operators/self").await.ok();
    assert_eq!(own, json!({"name": "ada@example.org", "scopes": ["approve"]}));

    let run = server.run_with_files(&[("Cargo.lock", "old\n")], json!({})).await;
    let change = json!({"path": "Cargo.lock", "content": "new\n", "expectedSha256": sha256("old\n"), "reason": "r"});
    let asked = run.call("write_file", change).await.refused("APPROVAL_REQUIRED");
    let path = format!("/v1/approvals/{}/approve", asked["approvalId"].as_str().unwrap());
    // A page of another origin, or of another port of this machine, decides nothing.
    for headers in
        [&[][..], &[("workspaced-session", "1"), ("sec-fetch-site", "same-site")], &[("sec-fetch-site", "same-origin")]]
    {
        ask(&server, &first, Method::POST, &path, json!({}), headers).await.refused("UNAUTHENTICATED");
    }
    assert_eq!(run.on_disk("Cargo.lock"), "old\n");
    let decided = ask(&server, &first, Method::POST, &path, json!({}), &OF_PAGE).await.ok();
    assert_eq!(decided["decidedBy"], "ada@example.org");
    assert_eq!(run.on_disk("Cargo.lock"), "new\n");
    get(&server, &first, "/v1/operators").await.refused("FORBIDDEN");

    // Another browser of the same person; both last until the person signs out.
    let second = session(&provider.sign_in(&server, "ada"));
    assert_ne!(first, second);
    for cookie in [&first, &second] {
        get(&server, cookie, "/v1/runs").await.ok();
    }
    let signed_out = ask(&server, &first, Method::POST, "/sign-out", json!({}), &OF_PAGE).await;
    assert_eq!(signed_out.status, 204);
    assert!(signed_out.header("set-cookie").contains("Max-Age=0"), "{}", signed_out.header("set-cookie"));
    for cookie in [&first, &second] {
        get(&server, cookie, "/v1/runs").await.refused("UNAUTHENTICATED");
    }
    let third = session(&provider.sign_in(&server, "ada"));
    // Other groups are other scopes, also in the sessions before.
    provider.ask("groups ada auditors");
    let fourth = session(&provider.sign_in(&server, "ada"));
    get(&server, &third, "/v1/runs").await.refused("UNAUTHENTICATED");
    assert_eq!(get(&server, &fourth, "/v1/operators/self").await.ok()["scopes"], json!(["audit"]));
    let chain = items(&server.operator(), "/v1/audit?run=_service").await;
    let of_ada = chain.iter().filter(|record| record["actor"] == "operator:ada@example.org");
    let tools: Vec<_> = of_ada.map(|record| record["tool"].as_str().unwrap()).collect();
    let expected = [
        "operator.create",
        "operator.rotate",
        "operator.rotate",
        "operator.rotate",
        "operator.revoke",
        "operator.create",
    ];
    assert_eq!(tools, expected);
}

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn nobody_else_is_signed_in(#[values(Backend::Sqlite)] backend: Backend) {
    let (server, mut provider) = service(backend).await;
    for (login, why) in [("mallory", "address is verified"), ("eve", "None of your groups")] {
        let answer = provider.sign_in(&server, login);
        assert_eq!((&answer["status"], answer["cookies"].as_array().unwrap().len()), (&json!(403), 0), "{answer:#}");
        assert!(answer["text"].as_str().unwrap().contains(why), "{answer:#}");
    }
    // The name of an operator that somebody has made is taken.
    server.operator().post("/v1/operators", json!({"name": "Ada@example.org", "scopes": ["audit"]})).await.is(201);
    assert_eq!(provider.sign_in(&server, "ada")["status"], 403);
    // An answer that this browser has not asked for, or that another page has made up.
    let attempt = server.nobody().get("/sign-in?to=//evil.example").await;
    assert_eq!(attempt.status, 303);
    let (cookie, location) = (attempt.header("set-cookie"), attempt.header("location"));
    assert!(location.starts_with(&provider.issuer) && location.contains("code_challenge_method=S256"), "{location}");
    assert!(cookie.contains("; HttpOnly; Secure; SameSite=Lax"), "{cookie}");
    let cookie = cookie.split(';').next().unwrap();
    let state = location.split("state=").nth(1).unwrap().split('&').next().unwrap();
    for (cookie, query) in [
        ("", format!("code=x&state={state}")),
        (cookie, "code=x&state=s_other".to_owned()),
        (cookie, "code=x".to_owned()),
        (cookie, format!("code=x&state={state}&iss=https://evil.example")),
        (cookie, format!("error=access_denied&state={state}")),
        // The provider does not know the code.
        (cookie, format!("code=x&state={state}")),
    ] {
        let request = server.nobody().request(Method::GET, &format!("/sign-in/callback?{query}"));
        let answer = server.nobody().send(request.header("cookie", cookie)).await;
        assert_eq!((answer.status, answer.header("set-cookie")), (403, ""), "{query}");
    }
    let other = Server::shared(backend).await;
    assert_eq!(other.nobody().get("/sign-in/issuer").await.ok(), json!({"issuer": null}));
    for path in ["/sign-in", "/sign-in/callback"] {
        assert_eq!(other.nobody().get(path).await.status, 404);
    }
}
