//! Coding agents as they are published, with a scripted model on loopback: what the model receives.

use rstest::rstest;

use super::assert_done;
use crate::harness::{Backend, Server, client_python, client_script, clients};

/// Agents that `.ci/test` installs. The others are large: `.ci/agents` installs them as well.
const SMALL: [&str; 2] = ["cn", "gemini"];

#[rstest]
#[case::exhaustive_claude_code("claude", "claude", None)]
#[case::exhaustive_claude_code_in_its_form("claude", "claude", Some("claude-code"))]
#[case::exhaustive_cline("cline", "cline", None)]
#[case::exhaustive_codex("codex", "codex", None)]
#[case::exhaustive_codex_in_its_form("codex", "codex", Some("codex"))]
#[case::continue_("continue", "cn", None)]
#[case::exhaustive_copilot_cli("copilot", "copilot", None)]
#[case::exhaustive_gemini_cli("gemini", "gemini", None)]
#[case::exhaustive_gemini_cli_in_its_form("gemini", "gemini", Some("gemini"))]
#[case::exhaustive_opencode("opencode", "opencode", None)]
#[case::exhaustive_openhands("openhands", "openhands", None)]
#[case::exhaustive_qwen_code("qwen", "qwen", None)]
#[case::exhaustive_qwen_code_in_its_form("qwen", "qwen", Some("qwen"))]
#[tokio::test(flavor = "multi_thread")]
async fn a_model_reads_the_text_of_the_service_through_an_agent(
    #[case] agent: &str,
    #[case] program: &str,
    #[case] form: Option<&str>,
) {
    let modules = match std::env::var_os("WORKSPACED_TEST_OPENHANDS") {
        Some(folder) if agent == "openhands" => folder.into(),
        _ => clients().join("agents/node_modules"),
    };
    if !SMALL.contains(&program) && !modules.join(".bin").join(program).exists() {
        eprintln!("SKIPPED: {agent} is not installed; .ci/agents installs it");
        return;
    }
    let server = Server::shared(Backend::Sqlite).await;
    let mut python = client_python();
    python.arg(client_script("agents.py")).arg(agent).arg(modules);
    python.arg(&server.operator().base).arg(&server.operator_token).args(form);
    python.env("WORKSPACED_BIN", env!("CARGO_BIN_EXE_workspaced"));
    python.env("WORKSPACED_TEST_WRITE", std::env::var_os("WORKSPACED_TEST_WRITE").unwrap_or_default());
    assert_done(&tokio::task::spawn_blocking(move || python.output().unwrap()).await.unwrap());
}
