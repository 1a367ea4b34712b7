//! The issuer of access tokens: what it needs, and what a URL as the audience means.

use super::*;

fn check_issuer(issuer: &str, audience: &str) -> Result<Config, ConfigError> {
    check(&["--oauth-issuer", issuer, "--oauth-audience", audience])
}

#[test]
fn an_issuer_needs_an_audience_and_https() {
    assert!(check(&[]).unwrap().issuer.is_none());
    for good in ["https://a.example", "https://a.example/t/v2", "http://127.0.0.1:1/t", "http://localhost:8080"] {
        let issuer = check_issuer(good, "files").unwrap().issuer.unwrap();
        assert_eq!((issuer.issuer.as_str(), issuer.resource, issuer.audiences), (good, None, vec!["files".to_owned()]));
    }
    for bad in [
        "http://a.example",
        "a.example",
        "ftp://a.example",
        "https://a.example?x=1",
        "https://a.example#x",
        "https://u:p@a.example",
        "http://127.0.0.1.example",
    ] {
        let message = error_of(check_issuer(bad, "files"));
        assert!(message.starts_with("--oauth-issuer: "), "{bad}: {message}");
        assert!(!message.contains("u:p"), "{message}");
    }
    for (arguments, part) in [
        (&["--oauth-issuer", "https://a.example"][..], "needs --oauth-audience"),
        (&["--oauth-audience", "files"], "need --oauth-issuer"),
        (&["--oauth-run-claim", "run"], "need --oauth-issuer"),
    ] {
        assert!(error_of(check(arguments)).contains(part), "{arguments:?}");
    }
    for claim in ["sub", "scope", "aud", "a b", "\u{e4}"] {
        let arguments =
            ["--oauth-issuer", "https://a.example", "--oauth-audience", "files", "--oauth-run-claim", claim];
        assert!(error_of(check(&arguments)).contains("--oauth-run-claim"), "{claim}");
    }
}

#[test]
fn an_audience_that_is_a_url_is_that_of_the_service_and_of_its_tools() {
    for audience in ["https://f.example/ws", "https://f.example/ws/", "https://f.example/ws/mcp"] {
        let issuer = check_issuer("https://a.example", audience).unwrap().issuer.unwrap();
        assert_eq!(issuer.resource.as_deref(), Some("https://f.example/ws"), "{audience}");
        for accepted in ["https://f.example/ws", "https://f.example/ws/mcp", audience] {
            assert!(issuer.audiences.iter().any(|known| known == accepted), "{audience}: {accepted}");
        }
    }
    for name in ["api://files", "files", "urn:files", "https://f.example?x=1"] {
        let issuer = check_issuer("https://a.example", name).unwrap().issuer.unwrap();
        assert_eq!((issuer.resource, issuer.audiences), (None, vec![name.to_owned()]), "{name}");
    }
}
