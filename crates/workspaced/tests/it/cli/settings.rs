//! Where a command takes the address and the token from.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use super::{Printed, run};
use crate::harness::{Backend, Server, workspaced};

/// Runs `run list` with `settings` as the client's settings in `home`.
fn list(home: &Path, settings: &str, mode: u32, env: &[(&str, &str)]) -> Printed {
    let folder = home.join(".config/workspaced");
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("client.toml");
    std::fs::write(&file, settings).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
    let mut command = workspaced();
    command.args(["run", "list", "--json"]).env("HOME", home).envs(env.iter().copied());
    run(command)
}

#[tokio::test]
async fn settings_come_from_the_file_or_the_environment() {
    let server = Server::start(Backend::Sqlite).await;
    let (home, base, token) = (&server.home, &server.base, &server.operator_token);
    let folder = home.join(".config/workspaced");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("token"), format!("{token}\n")).unwrap();
    let absolute = folder.join("token").to_str().unwrap().to_owned();

    list(home, &format!("url = '{base}'\ntoken_file = 'token'\n"), 0o644, &[]).ok();
    list(home, &format!("url = '{base}'\ntoken = '{token}'\n"), 0o600, &[]).ok();
    list(home, "", 0o644, &[("WORKSPACED_URL", base), ("WORKSPACED_TOKEN_FILE", &absolute)]).ok();
    let env = [("WORKSPACED_URL", base.as_str()), ("WORKSPACED_TOKEN", token)];
    list(home, "url = 'http://127.0.0.1:1'\ntoken = 'other'\n", 0o600, &env).ok();
    let other = [("XDG_CONFIG_HOME", "/nonexistent"), ("WORKSPACED_URL", base)];
    list(home, &format!("url = '{base}'\ntoken_file = 'token'\n"), 0o644, &other).failed(2, "no token");

    list(home, &format!("url = '{base}'\ntoken = '{token}'\n"), 0o644, &[]).failed(2, "can be read by others");
    list(home, "token = 'a'\ntoken_file = 'b'\n", 0o600, &[]).failed(2, "both");
    list(home, "password = 'a'\n", 0o600, &[]).failed(2, "password");
    list(home, "token_file = 'none'\n", 0o600, &[]).failed(2, "none: No such file");
}

#[tokio::test]
async fn a_token_of_the_settings_is_not_sent_to_another_address() {
    let server = Server::start(Backend::Sqlite).await;
    let settings = format!("url = 'http://127.0.0.1:1'\ntoken = '{}'\n", server.operator_token);
    let message = format!("no token for {}", server.base);
    list(&server.home, &settings, 0o600, &[("WORKSPACED_URL", &server.base)]).failed(2, &message);
}
