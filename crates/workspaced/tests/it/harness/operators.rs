//! Named operators.

use reqwest::Method;
use serde_json::{Value, json};

use super::{Client, Server};

impl Server {
    /// Creates an operator with `scopes`. Returns its name, which no other test has, and a client with its token.
    pub(crate) async fn named_operator(&self, name: &str, scopes: &[&str]) -> (String, Client) {
        let random = std::collections::hash_map::RandomState::new();
        let name = format!("{name}-{:x}", std::hash::BuildHasher::hash_one(&random, name));
        let body = json!({"name": name, "scopes": scopes});
        let created = self.operator().post("/v1/operators", body).await.is(201);
        (name, Client::new(&self.base, Some(created["token"].as_str().unwrap())))
    }

    /// Revokes an operator.
    pub(crate) async fn revoke_operator(&self, name: &str) {
        let answer = self.operator().delete(&format!("/v1/operators/{name}")).await;
        assert_eq!(answer.status, 204, "{}", answer.text());
    }
}

/// Calls an operation of the API document on `run`, with an arbitrary value for its other parameters. Returns the status
/// without waiting for a stream.
pub(crate) async fn status_of_call(client: &Client, method: &str, path: &str, run: &str) -> u16 {
    let mut concrete = path.replace("{run}", run);
    while let Some(start) = concrete.find('{') {
        let end = start + concrete[start..].find('}').unwrap();
        concrete.replace_range(start..=end, "none-such");
    }
    // The scope `approve` permits the records of one run.
    if concrete.starts_with("/v1/audit") {
        concrete = format!("{concrete}?run={run}");
    }
    let request = client.request(Method::from_bytes(method.to_uppercase().as_bytes()).unwrap(), &concrete);
    let request = if method == "post" { request.json(&json!({})) } else { request };
    request.send().await.unwrap().status().as_u16()
}

/// Returns the members of `value` that are named.
pub(crate) fn members(value: &Value, names: &[&str]) -> Value {
    names.iter().map(|name| ((*name).to_owned(), value[*name].clone())).collect::<serde_json::Map<_, _>>().into()
}
