//! A runner of commands, without a sandbox.

use reqwest::Method;
use serde_json::{Value, json};

use super::{Answer, Client, Run, until};

/// A runner of a run, as its program speaks with the service.
#[derive(Clone)]
pub(crate) struct Runner {
    pub(crate) run: String,
    pub(crate) client: Client,
    /// The name that it gives itself.
    pub(crate) name: String,
}

impl Runner {
    /// One with every permission that a runner needs.
    pub(crate) async fn new(run: &Run) -> Self {
        Self::with(run, &["command:serve", "changeset:apply", "file:read", "event:append", "evidence:attest"]).await
    }

    /// One with these permissions.
    pub(crate) async fn with(run: &Run, permissions: &[&str]) -> Self {
        let token =
            run.operator.post(&format!("/v1/runs/{}/tokens", run.id), json!({"permissions": permissions})).await;
        let client = run.agent.with_token(token.is(201)["token"].as_str());
        Self { run: run.id.clone(), client, name: "r1".to_owned() }
    }

    /// Asks what to do next.
    pub(crate) async fn ask(&self, wait_seconds: u64, running: Option<&str>) -> Answer {
        let body = json!({"runner": self.name, "waitSeconds": wait_seconds, "running": running});
        self.client.post(&format!("/v1/runs/{}/commands/next", self.run), body).await
    }

    /// Attaches to the run.
    pub(crate) async fn attach(&self) {
        assert_eq!(self.ask(0, None).await.ok(), json!({}));
    }

    /// Waits for the next command.
    pub(crate) async fn next(&self) -> Value {
        let next = async || Some(self.ask(20, None).await.ok()["command"].clone()).filter(Value::is_object);
        until("the runner is given a command", next).await
    }

    /// Reports a result, with a layer if the command has changed something.
    pub(crate) async fn report(&self, id: &str, result: Value, layer: Option<&[u8]>) -> Answer {
        let mut all = json!({"runner": self.name, "durationMicros": 1500});
        all.as_object_mut().unwrap().extend(result.as_object().unwrap().clone());
        let part = |name: &str| format!("--border\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n");
        let mut body = format!("{}{all}\r\n", part("result")).into_bytes();
        if let Some(layer) = layer {
            body.extend([part("layer").as_bytes(), layer, b"\r\n"].concat());
        }
        body.extend(b"--border--\r\n");
        let request = self.client.request(Method::POST, &format!("/v1/runs/{}/commands/{id}/result", self.run));
        self.client.send(request.header("content-type", "multipart/form-data; boundary=border").body(body)).await
    }
}
