//! Clients, generators and agents of others, as they are published, against the real server. `.ci/test` runs these tests if
//! their inputs have changed since they last passed, and `.ci/test all` always.

mod agents;
mod api_clients;
mod packages;
mod protocol_clients;

use std::process::Output;

/// Asserts that a script of a client reached its end.
fn assert_done(output: &Output) {
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && out.ends_with("done\n"), "{out}\n{err}");
}
