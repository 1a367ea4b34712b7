//! A server of S3.

use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use reqwest::Method;

use super::{Client, clients, third_party};

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
        let deadline = Instant::now() + Duration::from_mins(1);
        while !client
            .try_send(client.request(Method::PUT, "/archives"))
            .await
            .is_ok_and(|put| (200..300).contains(&put.status))
        {
            assert!(Instant::now() < deadline, "the S3 server does not start");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
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
