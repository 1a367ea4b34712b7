//! The webhooks of the file, and messages about those that cannot be used.

use model::WebhookEvent;

use super::*;

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// Checks a file with these lines, in which the environment variable `SECRETS` has `secrets`.
fn check_file(text: &str, secrets: &str) -> Result<Config, ConfigError> {
    let (_folder, path) = file(text);
    check_with(&["--config", &path], &|name| (name == "SECRETS").then(|| secrets.to_owned()))
}

fn webhook(url: &str) -> String {
    format!("[[webhook]]\nname = \"chat\"\nurl = \"{url}\"\nsecret_env = \"SECRETS\"\n")
}

#[test]
fn a_webhook_has_one_or_two_secrets_and_all_events_by_default() {
    let secrets = format!("{SECRET} whsec_{}", "A".repeat(32));
    let config = check_file(&webhook("https://u:p@hooks.example.org/x?k=v"), &secrets).unwrap();
    let [chat] = &config.webhooks[..] else { panic!("{config:?}") };
    assert_eq!(chat.secrets.iter().map(Vec::len).collect::<Vec<_>>(), [24, 24]);
    assert_eq!(chat.events, WebhookEvent::ALL);
    let shown = format!("{config:?}");
    assert!(!shown.contains("hooks.example.org") && !shown.contains("secrets"), "{shown}");
    let (folder, path) = file(&format!("{SECRET}\n"));
    let text = format!(
        "[[webhook]]\nname = \"a\"\nurl = \"http://[::1]:80/\"\nsecret-file = \"{path}\"\nevents = [\"run.closed\", \"run.closed\"]\n"
    );
    let config = check_file(&text, "").unwrap();
    drop(folder);
    assert_eq!((config.webhooks[0].secrets.len(), &config.webhooks[0].events[..]), (1, &[WebhookEvent::RunClosed][..]));
}

#[test]
fn http_is_for_loopback_only() {
    for url in
        ["http://localhost/", "http://127.0.0.1:8000/x", "http://127.9.9.9/", "http://[::1]/", "https://10.0.0.1/"]
    {
        check_file(&webhook(url), SECRET).unwrap();
    }
    for url in ["http://hooks.example.org/", "http://10.0.0.1/", "http://localhost.example.org/", "http://[::2]/"] {
        assert!(error_of(check_file(&webhook(url), SECRET)).contains("use https"), "{url}");
    }
    for url in ["ftp://localhost/", "hooks.example.org", "", "https://", "https://a.example/#part", "unix:/run/x"] {
        assert!(error_of(check_file(&webhook(url), SECRET)).contains("webhook `chat`: url"), "{url}");
    }
}

#[test]
fn what_cannot_be_used_is_refused_without_showing_the_secret() {
    let good = webhook("https://hooks.example.org/");
    let (twice, three) = (good.repeat(2), format!("{SECRET} {SECRET} {SECRET}"));
    let unnamed = good.replace("chat", "a b");
    let both = format!("{good}secret_file = \"/x\"\n");
    let neither = good.replace("secret_env = \"SECRETS\"\n", "");
    let unset = good.replace("SECRETS", "OTHER");
    let (none, unknown) = (format!("{good}events = []\n"), format!("{good}events = [\"run.opened\"]\n"));
    let (short, long) = (format!("whsec_{}", "A".repeat(28)), format!("whsec_{}", "A".repeat(88)));
    let many = (0..17).map(|number| good.replace("chat", &format!("w{number}"))).collect::<String>();
    for (text, secret, needle) in [
        (&good, "", "one or two secrets"),
        (&good, &three, "one or two secrets"),
        (&good, &SECRET[6..], "one or two secrets"),
        (&good, &short, "one or two secrets"),
        (&good, &long, "one or two secrets"),
        (&good, "whsec_!!!!", "one or two secrets"),
        (&twice, SECRET, "two webhooks of this name"),
        (&unnamed, SECRET, "expected a name"),
        (&both, SECRET, "either secret_file or secret_env"),
        (&neither, SECRET, "either secret_file or secret_env"),
        (&unset, SECRET, "OTHER is not set"),
        (&none, SECRET, "events is empty"),
        (&unknown, SECRET, "run.opened"),
        (&many, SECRET, "more than 16"),
    ] {
        let message = error_of(check_file(text, secret));
        assert!(message.contains(needle), "{message}");
        assert!(secret.len() < 7 || !message.contains(&secret[6..]), "{message}");
    }
}
