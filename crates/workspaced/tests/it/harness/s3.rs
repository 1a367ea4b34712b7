//! A server of S3.

use std::process::{Child, Stdio};

use reqwest::Method;

use super::{Client, clients, third_party, until};

/// A server of S3 on this machine, which keeps objects in memory.
#[derive(Debug)]
pub(crate) struct S3 {
    process: Child,
    /// Its address.
    pub(crate) url: String,
}

impl S3 {
    /// Starts the server on `port`, with an empty bucket.
    pub(crate) async fn start(port: u16) -> Self {
        let mut command = third_party(clients().join("python/bin/moto_server"));
        command.args(["-H", "127.0.0.1", "-p", &port.to_string()]).stdout(Stdio::null()).stderr(Stdio::null());
        let s3 = Self { process: command.spawn().unwrap(), url: format!("http://127.0.0.1:{port}") };
        let client = Client::new(&s3.url, None);
        until("the S3 server has a bucket", async || {
            let put = client.try_send(client.request(Method::PUT, "/archives")).await;
            put.is_ok_and(|put| (200..300).contains(&put.status))
        })
        .await;
        s3
    }

    /// Returns the variables of a client of the server on `port`.
    pub(crate) fn env(port: u16) -> Vec<(String, String)> {
        let endpoint = format!("http://127.0.0.1:{port}");
        let variables = [
            ("AWS_ACCESS_KEY_ID", "id"),
            ("AWS_SECRET_ACCESS_KEY", "secret"),
            ("AWS_REGION", "us-east-1"),
            ("AWS_ENDPOINT_URL", &*endpoint),
        ];
        variables.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec()
    }
}

impl Drop for S3 {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
