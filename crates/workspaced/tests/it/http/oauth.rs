//! Access tokens of an issuer: whom they name, what they permit, every way in which they are not valid, and how clients find the issuer.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use rstest::rstest;
use serde_json::{Value, json};

use crate::harness::{
    Answer, Backend, Client, Issuer, IssuerMode, KEY_RENEWAL, Run, Server, Signer, in_time, unsigned, until,
};
use crate::policy::several_approvers::run as run_with_rule;

const FILES: [(&str, &str); 1] = [("src/a.py", "a = 1\n")];

fn with(server: &Server, token: &str) -> Client {
    Client::new(&server.base, Some(token))
}

async fn read(client: &Client, run: &Run) -> Answer {
    client.post(&format!("/v1/runs/{}/tools/read_file", run.id), json!({"path": "src/a.py"})).await
}

/// The refusal that every token gets which is not valid, without the request that it names.
async fn refusal(server: &Server) -> String {
    server.nobody().get("/v1/runs").await.refused("UNAUTHENTICATED").to_string()
}

/// Asserts that the token is refused as every other one that is not valid.
async fn refused(server: &Server, token: &str, why: &str) {
    let answer = with(server, token).get("/v1/operators/self").await;
    assert_eq!(answer.status, 401, "{why}: {}", answer.text());
    assert_eq!(answer.refused("UNAUTHENTICATED").to_string(), refusal(server).await, "{why}");
}

#[rstest]
#[tokio::test]
async fn a_token_of_the_issuer_names_an_operator_with_the_scopes_that_it_has(
    #[values(Backend::Sqlite)] backend: Backend,
) {
    let issuer = Issuer::start().await;
    let server = Server::start_with(issuer.setup(backend)).await;
    let ada = with(&server, &issuer.token(json!({"scope": "openid orchestrate nonsense"})));
    let own = ada.get("/v1/operators/self").await.ok();
    let name = own["name"].as_str().unwrap().to_owned();
    assert!(name.starts_with("oauth-ada-127_0_0_1-") && name.len() < 64, "{name}");
    assert_eq!(own["scopes"], json!(["orchestrate"]));
    // Who has the same subject is the same person, whatever the token; another subject is another one.
    let again = with(&server, &issuer.token(json!({"scope": "audit", "jti": "2"})));
    assert_eq!(again.get("/v1/operators/self").await.ok()["name"], name.as_str());
    let eve = with(&server, &issuer.token(json!({"sub": "Ada", "scope": "audit"})));
    assert_ne!(eve.get("/v1/operators/self").await.ok()["name"], name.as_str());

    let created = ada.post("/v1/runs", json!({"source": {"type": "empty"}})).await.is(201);
    let run = created["run"]["runId"].as_str().unwrap();
    assert_eq!(created["run"]["createdBy"], name.as_str());
    let write = json!({"path": "a.txt", "content": "a\n", "reason": "r"});
    ada.post(&format!("/v1/runs/{run}/tools/write_file"), write.clone()).await.ok();
    let records = again.get(&format!("/v1/runs/{run}/audit?actor=operator:{name}")).await.ok();
    assert!(records["items"].as_array().unwrap().iter().any(|record| record["tool"] == "write_file"), "{records}");
    // A scope permits what it permits operators, and no scope permits nothing.
    again.post(&format!("/v1/runs/{run}/tools/write_file"), write.clone()).await.refused("FORBIDDEN");
    for scope in [json!("Orchestrate orchestrate:all"), json!(""), json!("file:write:create file:read"), Value::Null] {
        let nobody = with(&server, &issuer.token(json!({"scope": scope})));
        nobody.get("/v1/runs").await.refused("FORBIDDEN");
        nobody.post(&format!("/v1/runs/{run}/tools/write_file"), write.clone()).await.refused("FORBIDDEN");
    }
    // Nobody else can have such a name.
    let taken = ada.post("/v1/operators", json!({"name": name, "scopes": ["audit"]})).await;
    taken.refused("INVALID_REQUEST");
    // What an operator by a token makes is an operator as any other.
    let made = ada.post("/v1/operators", json!({"name": "made", "scopes": ["audit"]})).await.is(201);
    with(&server, made["token"].as_str().unwrap()).get("/v1/runs").await.ok();
    let chain = server.operator().get("/v1/audit?run=_service").await.ok();
    assert!(chain["items"].as_array().unwrap().iter().any(|record| record["actor"] == format!("operator:{name}")));
    // The tokens of the service are valid as before.
    server.operator().get("/v1/runs").await.ok();
    assert_eq!(issuer.requests(), 1, "the keys are fetched once");
}

#[rstest]
#[tokio::test]
async fn a_token_that_names_a_run_is_for_that_run_and_has_the_permissions_of_its_scopes(
    #[values(Backend::Sqlite)] backend: Backend,
) {
    let issuer = Issuer::start().await;
    let server = Server::start_with(issuer.setup(backend)).await;
    let run = server.run_with_files(&FILES, json!({})).await;
    let other = server.run_with_files(&FILES, json!({})).await;
    // Scopes of operators permit nothing in a token for a run.
    let scope = "file:read file:list audit:read orchestrate approve";
    let agent = with(&server, &issuer.token(json!({"run": run.id, "scope": scope})));
    read(&agent, &run).await.ok();
    let record = run.last_record().await;
    let actor = record["actor"].as_str().unwrap();
    assert!(actor.starts_with("run-token:oauth-ada-127_0_0_1-"), "{record}");
    assert_eq!(record["by"], "agent", "{record}");
    let write = json!({"path": "b.txt", "content": "b\n", "reason": "r"});
    let path = format!("/v1/runs/{}/tools/write_file", run.id);
    agent.post(&path, write.clone()).await.refused("FORBIDDEN");
    read(&agent, &other).await.refused("FORBIDDEN");
    for path in ["/v1/runs", "/v1/audit", "/v1/operators/self"] {
        agent.get(path).await.refused("FORBIDDEN");
    }
    agent.post(&format!("/v1/runs/{}/tokens", run.id), json!({})).await.refused("FORBIDDEN");
    let writer = with(&server, &issuer.token(json!({"run": run.id, "scope": "file:write:create"})));
    writer.post(&path, write).await.ok();
    // By the protocol too, where the token says which run is meant.
    let list = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"});
    let request = agent
        .request(reqwest::Method::POST, "/mcp")
        .header("accept", "application/json, text/event-stream")
        .header("mcp-protocol-version", "2025-06-18");
    let tools = agent.send(request.json(&list)).await.ok();
    let names: Vec<_> = tools["result"]["tools"].as_array().unwrap().iter().map(|tool| tool["name"].clone()).collect();
    assert!(names.contains(&json!("read_file")) && !names.contains(&json!("write_file")), "{names:?}");
    // A claim that is no name of a run makes no operator of its caller.
    for claim in [json!(""), json!(["r"]), json!(7), json!("../r"), json!("_service"), json!({"run": run.id})] {
        refused(&server, &issuer.token(json!({"run": claim, "scope": "orchestrate"})), &claim.to_string()).await;
    }
    // A run that does not exist, and one that is deleted.
    let none = Run { id: "none-such".to_owned(), ..run.clone() };
    let lost = with(&server, &issuer.token(json!({"run": none.id, "scope": scope})));
    read(&lost, &none).await.refused("RUN_NOT_FOUND");
    let own = read(&run.agent, &run).await;
    own.ok();
    server.operator().delete(&format!("/v1/runs/{}", run.id)).await;
    for agent in [&agent, &writer] {
        let answer = agent.post(&format!("/v1/runs/{}/tools/list_dir", run.id), json!({})).await;
        assert!([403, 404, 409].contains(&answer.status), "{}", answer.text());
    }
    assert_eq!(other.verify().await["intact"], true);
}

#[rstest]
#[tokio::test]
async fn a_token_that_is_not_valid_here_and_now_is_refused_as_every_other(#[values(Backend::Sqlite)] backend: Backend) {
    let issuer = Issuer::start().await;
    let rsa = Signer::rsa("rsa");
    issuer.set_keys(vec![issuer.signer.jwk(), rsa.jwk(), json!({"kty": "oct", "kid": "oct", "k": "c2VjcmV0"})]);
    let server = Server::start_with(issuer.setup(backend)).await;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let claims = issuer.claims(json!({"scope": "audit"}));
    // The valid ones first.
    for token in [
        issuer.token(json!({"scope": "audit"})),
        issuer.signer.sign(&json!({"kid": null}), &claims),
        issuer.signer.sign(&json!({"typ": "application/at+jwt"}), &claims),
        rsa.sign(&json!({}), &claims),
        rsa.sign(&json!({"alg": "PS256"}), &claims),
        issuer.token(json!({"scope": "audit", "aud": ["other", "files"], "nbf": now + 5})),
    ] {
        with(&server, &token).get("/v1/runs").await.ok();
    }
    // A header that says nothing true.
    let (stranger, elsewhere) = (Signer::ec("first"), Signer::rsa("rsa"));
    for (why, token) in [
        ("another key under the name", stranger.sign(&json!({}), &claims)),
        ("another RSA key under the name", elsewhere.sign(&json!({}), &claims)),
        ("no such key", issuer.signer.sign(&json!({"kid": "none"}), &claims)),
        ("the name of the other key", issuer.signer.sign(&json!({"kid": "rsa"}), &claims)),
        ("its own key", stranger.sign(&json!({"kid": null, "jwk": stranger.jwk()}), &claims)),
        ("an address of keys", stranger.sign(&json!({"kid": null, "jku": format!("{}/keys", issuer.url)}), &claims)),
        ("no type", issuer.signer.sign(&json!({"typ": null}), &claims)),
        ("an ID token", issuer.signer.sign(&json!({"typ": "JWT"}), &claims)),
        ("an extension", issuer.signer.sign(&json!({"crit": ["exp"]}), &claims)),
        ("another algorithm", rsa.sign(&json!({"alg": "RS512"}), &claims)),
        ("an algorithm of the other key", issuer.signer.sign(&json!({"alg": "RS256"}), &claims)),
    ] {
        refused(&server, &token, why).await;
    }
    // No signature, and one with what everybody knows.
    for algorithm in ["none", "None", "nOnE", ""] {
        let signed = unsigned(&json!({"alg": algorithm, "typ": "at+jwt"}), &claims);
        refused(&server, &format!("{signed}."), algorithm).await;
        refused(&server, &format!("{signed}.AAAA"), algorithm).await;
    }
    for (id, secret) in
        [("rsa", rsa.jwk()["n"].clone()), ("first", issuer.signer.jwk()["x"].clone()), ("oct", json!("c2VjcmV0"))]
    {
        let signed = unsigned(&json!({"alg": "HS256", "typ": "at+jwt", "kid": id}), &claims);
        let secret = URL_SAFE_NO_PAD.decode(secret.as_str().unwrap()).unwrap();
        let mut mac = Hmac::<sha2::Sha256>::new_from_slice(&secret).unwrap();
        mac.update(signed.as_bytes());
        let signature = URL_SAFE_NO_PAD.encode(mac.finalize().into_bytes());
        refused(&server, &format!("{signed}.{signature}"), id).await;
    }
    // Claims for somebody else, or another time.
    for (member, value) in [
        ("iss", json!("http://127.0.0.1:1")),
        ("iss", json!(format!("{}/", issuer.url))),
        ("iss", Value::Null),
        ("aud", json!("file")),
        ("aud", json!(["filess"])),
        ("aud", Value::Null),
        ("exp", json!(now - 31)),
        ("exp", json!("never")),
        ("exp", Value::Null),
        ("nbf", json!(now + 3600)),
        ("iat", json!(now + 3600)),
        ("iat", Value::Null),
        ("sub", Value::Null),
        ("sub", json!("")),
    ] {
        let token = issuer.token(json!({"scope": "audit", member: value}));
        refused(&server, &token, &format!("{member}: {value}")).await;
    }
    // A valid token that was cut, changed or made long.
    let good = issuer.token(json!({"scope": "audit"}));
    let (signed, signature) = good.rsplit_once('.').unwrap();
    let (header, _) = signed.split_once('.').unwrap();
    let other = URL_SAFE_NO_PAD.encode(issuer.claims(json!({"scope": "orchestrate"})).to_string());
    for (why, token) in [
        ("no signature", format!("{signed}.")),
        ("two parts", signed.to_owned()),
        ("half a signature", format!("{signed}.{}", &signature[..40])),
        ("other claims", format!("{header}.{other}.{signature}")),
        ("padding", format!("{good}=")),
        ("a fourth part", format!("{good}.{signature}")),
        ("9 KB", format!("{header}.{}.{signature}", "A".repeat(9000))),
    ] {
        refused(&server, &token, why).await;
    }
    let megabyte = format!("{header}.{}.{signature}", "A".repeat(1 << 20));
    let sent = with(&server, &megabyte).request(reqwest::Method::GET, "/v1/runs").send().await;
    assert!(sent.map_or(true, |answer| [400, 401, 431].contains(&answer.status().as_u16())));
    with(&server, &good).get("/v1/runs").await.ok();
    // Of all these, at most the unknown names of keys have made requests to the issuer, and not one each.
    assert!(issuer.requests() <= 1 + 6, "{}", issuer.requests());
}

#[rstest]
#[tokio::test]
async fn failures_count_as_those_of_other_tokens(#[values(Backend::Sqlite)] backend: Backend) {
    let issuer = Issuer::start().await;
    let server = Server::start_with(issuer.setup(backend).arg("--auth-failures-per-minute", 20)).await;
    let good = with(&server, &issuer.token(json!({"scope": "audit"})));
    let bad = with(&server, &Signer::ec("first").sign(&json!({}), &issuer.claims(json!({"scope": "audit"}))));
    good.get("/v1/runs").await.ok();
    let mut statuses = Vec::new();
    for _ in 0..25 {
        statuses.push(bad.get("/v1/runs").await.status);
    }
    assert_eq!((statuses[0], statuses[24]), (401, 429), "{statuses:?}");
    good.get("/v1/runs").await.ok();
    let new = with(&server, &issuer.token(json!({"scope": "audit", "jti": "new"})));
    new.get("/v1/runs").await.ok();
}

/// Waits until the token is answered with `status`: keys are fetched again at most every ten seconds.
async fn until_answered(client: &Client, status: u16) {
    let answered = async || {
        let answer = client.get("/v1/runs").await;
        if answer.status == status { Ok(()) } else { Err(answer.text()) }
    };
    until(&format!("the token is answered with {status}"), answered).await;
}

#[rstest]
#[tokio::test]
async fn keys_are_replaced_by_the_issuer_and_stay_while_it_is_away(#[values(Backend::Sqlite)] backend: Backend) {
    let issuer = Issuer::start().await;
    issuer.set_mode(IssuerMode::OpenId);
    let server = Server::start_with(issuer.setup(backend)).await;
    let claims = issuer.claims(json!({"scope": "audit"}));
    let old = with(&server, &issuer.token(json!({"scope": "audit"})));
    old.get("/v1/runs").await.ok();
    // A stream with a token ends when its key is withdrawn.
    let mut stream = old.stream("/v1/audit/stream", None).await;
    let second = Signer::ec("second");
    issuer.set_keys(vec![second.jwk()]);
    let new = with(&server, &second.sign(&json!({}), &claims));
    until_answered(&new, 200).await;
    until_answered(&old, 401).await;
    let ended = async { while stream.chunk().await.unwrap().is_some() {} };
    in_time("the end of the stream, whose key was withdrawn", ended).await;
    // Whatever the issuer does now, its last keys stay.
    for mode in
        [IssuerMode::Away, IssuerMode::Huge, IssuerMode::Slow, IssuerMode::OtherIssuer, IssuerMode::KeysElsewhere]
    {
        issuer.set_mode(mode);
        let unknown = with(&server, &Signer::ec("third").sign(&json!({}), &claims));
        unknown.get("/v1/runs").await.refused("UNAUTHENTICATED");
        new.get("/v1/runs").await.ok();
        let fresh = issuer.claims(json!({"scope": "audit", "jti": format!("{mode:?}")}));
        with(&server, &second.sign(&json!({}), &fresh)).get("/v1/runs").await.ok();
    }
    // Unknown names do not make a request each.
    let before = issuer.requests();
    issuer.set_mode(IssuerMode::Normal);
    for number in 0..50 {
        let unknown = Signer::ec(&format!("unknown-{number}")).sign(&json!({}), &claims);
        with(&server, &unknown).get("/v1/runs").await.refused("UNAUTHENTICATED");
    }
    let asked = issuer.requests() - before;
    assert!(asked <= 5, "{asked} requests for 50 unknown keys");
}

#[rstest]
#[tokio::test]
async fn an_issuer_whose_keys_cannot_be_used_gives_none(
    #[values(Backend::Sqlite)] backend: Backend,
    #[values(IssuerMode::Away, IssuerMode::Huge, IssuerMode::Slow, IssuerMode::OtherIssuer, IssuerMode::KeysElsewhere)]
    mode: IssuerMode,
) {
    let issuer = Issuer::start().await;
    issuer.set_mode(mode);
    let server = Server::start_with(issuer.setup(backend)).await;
    let started = Instant::now();
    let ada = with(&server, &issuer.token(json!({"scope": "audit"})));
    // The token may be valid: its caller is told to come again, and the others are served.
    ada.get("/v1/runs").await.refused("UNAVAILABLE");
    assert!(started.elapsed() < KEY_RENEWAL, "the issuer holds the service up");
    server.operator().get("/v1/runs").await.ok();
    refused(&server, &issuer.token(json!({"aud": "other"})), "for another service").await;
    issuer.set_mode(IssuerMode::Normal);
    until_answered(&ada, 200).await;
}

#[rstest]
#[tokio::test]
async fn one_person_is_one_whatever_the_token(#[values(Backend::Sqlite)] backend: Backend) {
    let issuer = Issuer::start().await;
    let server = Server::start_with(issuer.setup(backend)).await;
    let operator =
        |subject: &str| with(&server, &issuer.token(json!({"sub": subject, "scope": "orchestrate approve"})));
    let approve =
        async |client: &Client, id: &str| client.post(&format!("/v1/approvals/{id}/approve"), json!({})).await;
    let ask = async |run: &Run, caller: &Client, content: &str| {
        let input = json!({"path": "Cargo.lock", "content": content, "expectedSha256": crate::harness::sha256("old\n"), "reason": "r"});
        let path = format!("/v1/runs/{}/tools/write_file", run.id);
        caller.post(&path, input).await.refused("APPROVAL_REQUIRED")["approvalId"].as_str().unwrap().to_owned()
    };
    // The subject of a token for a run may not approve its calls, and the creator of the run may not either.
    let run = run_with_rule(&server, &operator("ada"), json!({"notCreator": true})).await;
    let scope = "file:read file:write:replace";
    let agent = with(&server, &issuer.token(json!({"sub": "bo", "run": run.id, "scope": scope})));
    let id = ask(&run, &agent, "one\n").await;
    for person in ["bo", "ada"] {
        let refused = approve(&operator(person), &id).await.refused("FORBIDDEN");
        assert_eq!(refused["reasons"], json!(["approval:notCreator"]), "{person}: {refused}");
    }
    assert_eq!(approve(&operator("cy"), &id).await.ok()["state"], "approved");
    // Two tokens of one subject are one approver.
    let run = run_with_rule(&server, &server.operator(), json!({"approvers": 2})).await;
    let id = ask(&run, &run.agent, "two\n").await;
    assert_eq!(approve(&operator("ada"), &id).await.ok()["state"], "pending");
    let again = with(&server, &issuer.token(json!({"scope": "approve", "jti": "another"})));
    assert_eq!(approve(&again, &id).await.ok()["approvedBy"].as_array().map(Vec::len), Some(1));
    assert_eq!(approve(&operator("bo"), &id).await.ok()["state"], "approved");
}

#[rstest]
#[tokio::test]
async fn an_expired_token_ends_its_calls_and_streams(#[values(Backend::Sqlite)] backend: Backend) {
    let issuer = Issuer::start().await;
    let server = Server::start_with(issuer.setup(backend)).await;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    // The clocks may differ by 30 seconds, so that it is valid for ten more.
    let ada = with(&server, &issuer.token(json!({"scope": "audit", "exp": now - 20})));
    let mut stream = ada.stream("/v1/audit/stream", None).await;
    let ended = async { while stream.chunk().await.unwrap().is_some() {} };
    in_time("the end of the stream with its token", ended).await;
    ada.get("/v1/runs").await.refused("UNAUTHENTICATED");
}

#[rstest]
#[tokio::test]
async fn clients_are_told_where_the_issuer_is(#[values(Backend::Sqlite)] backend: Backend) {
    const PATH: &str = "/.well-known/oauth-protected-resource";
    let challenge = |answer: &Answer| answer.header("www-authenticate").to_owned();
    let plain = Server::shared(backend).await;
    for path in [PATH, "/.well-known/oauth-protected-resource/mcp"] {
        plain.nobody().get(path).await.refused("NOT_FOUND");
    }
    let without = plain.nobody().get("/v1/runs").await;
    assert_eq!(challenge(&without), "Bearer realm=\"workspaced\", error=\"invalid_token\"");

    let issuer = Issuer::start().await;
    let server = Server::start_with(issuer.setup(backend)).await;
    let metadata = server.nobody().get(PATH).await.ok();
    assert_eq!(metadata["resource"], server.base.as_str());
    assert_eq!(metadata["authorization_servers"], json!([issuer.url]));
    assert_eq!(metadata["bearer_methods_supported"], json!(["header"]));
    let scopes = metadata["scopes_supported"].as_array().unwrap();
    assert!(scopes.contains(&json!("orchestrate")) && scopes.contains(&json!("file:read")), "{scopes:?}");
    let of_mcp = server.nobody().get(&format!("{PATH}/mcp")).await.ok();
    assert_eq!(of_mcp["resource"], format!("{}/mcp", server.base));
    for (method, path, resource) in [
        (reqwest::Method::GET, "/v1/runs", ""),
        (reqwest::Method::GET, "/v1/tools", ""),
        (reqwest::Method::POST, "/mcp", "/mcp"),
    ] {
        let nobody = server.nobody();
        let answer = nobody.send(nobody.request(method, path).json(&json!({}))).await;
        let expected = format!(
            "Bearer realm=\"workspaced\", error=\"invalid_token\", resource_metadata=\"{}{PATH}{resource}\"",
            server.base
        );
        assert_eq!((answer.status, challenge(&answer)), (401, expected), "{path}");
    }
    // A host that is none does not get into the challenge.
    for host in ["a\"b", "a b", "a/b", "user@host"] {
        let request = server.nobody().request(reqwest::Method::GET, "/v1/runs").header("host", host);
        let answer = server.nobody().try_send(request).await.unwrap();
        assert!(!challenge(&answer).contains("resource_metadata"), "{}", challenge(&answer));
    }

    // An audience that is a URL is that of the service, whatever the host of a request.
    let public = "https://files.example.org/ws";
    let setup = crate::harness::Setup::new(backend).arg("--oauth-issuer", &issuer.url);
    let server = Server::start_with(setup.arg("--oauth-audience", format!("{public}/"))).await;
    assert_eq!(server.nobody().get(&format!("{PATH}/mcp")).await.ok()["resource"], format!("{public}/mcp"));
    let expected = format!("resource_metadata=\"https://files.example.org{PATH}/ws\"");
    assert!(challenge(&server.nobody().get("/v1/runs").await).ends_with(&expected));
    for (audience, is_own) in [
        (public.to_owned(), true),
        (format!("{public}/"), true),
        (format!("{public}/mcp"), true),
        (format!("{public}/other"), false),
        ("https://files.example.org".to_owned(), false),
    ] {
        let token = issuer.token(json!({"scope": "audit", "aud": audience}));
        let status = with(&server, &token).get("/v1/runs").await.status;
        assert_eq!(status, if is_own { 200 } else { 401 }, "{audience}");
    }
}
