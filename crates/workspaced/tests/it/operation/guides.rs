//! The code blocks of the pages in `deploy/`: commands are run as pasted, examples are given to what reads them.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};

use crate::harness::{Backend, Server, Setup, workspaced};

/// A code block. `sh` is run by the test below, `json`, `toml`, `yaml` and `python` are checked by others, and `text` is shown only.
struct Block {
    page: String,
    language: String,
    text: String,
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy")
}

/// Every block of every page, in order.
fn blocks() -> Vec<Block> {
    let folders = [folder(), folder().join("operations")].map(|folder| std::fs::read_dir(folder).unwrap());
    let mut pages: Vec<_> = folders.into_iter().flatten().map(|entry| entry.unwrap().path()).collect();
    pages.retain(|path| path.extension().is_some_and(|extension| extension == "md"));
    pages.sort();
    let mut blocks = Vec::new();
    for path in pages {
        let page = path.strip_prefix(folder()).unwrap().to_str().unwrap().to_owned();
        let document = std::fs::read_to_string(&path).unwrap();
        for (number, part) in document.split("\n```").enumerate().filter(|(number, _)| number % 2 == 1) {
            let (language, text) = part.split_once('\n').unwrap_or_else(|| panic!("block {number} of {page} is empty"));
            blocks.push(Block { page: page.clone(), language: language.to_owned(), text: text.to_owned() });
        }
    }
    blocks
}

pub(crate) fn blocks_of(page: &str, language: &str) -> Vec<String> {
    let found = blocks().into_iter().filter(|block| block.page == page && block.language == language);
    found.map(|block| block.text).collect()
}

pub(crate) fn succeed(mut command: Command, what: &str) -> String {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(status.success(), "{what}: {status}\n{out}\n{err}");
    out.into_owned()
}

/// The commands of each page are run in one shell in their order, in an empty folder, against a service of their own. They get
/// `WORKSPACED_URL`, the token `OPERATOR`, and the settings of the service.
#[tokio::test(flavor = "multi_thread")]
async fn the_commands_of_every_page_run_as_pasted() {
    let mut pages: Vec<String> =
        blocks().into_iter().filter(|block| block.language == "sh").map(|block| block.page).collect();
    pages.dedup();
    assert!(pages.contains(&"cli.md".to_owned()), "{pages:?}");
    for page in pages {
        let server = Server::start(Backend::Sqlite).await;
        let program = Path::new(env!("CARGO_BIN_EXE_workspaced")).parent().unwrap();
        let work = server.home.join("work");
        std::fs::create_dir(&work).unwrap();
        let mut shell = Command::new("sh");
        shell.args(["-euc", &blocks_of(&page, "sh").join("\n")]).current_dir(&work).env_clear();
        shell.env("PATH", format!("{}:{}", program.display(), std::env::var("PATH").unwrap())).env("HOME", &work);
        shell.env("WORKSPACED_DATA_DIR", server.data_dir()).env("WORKSPACED_DATABASE_URL", &server.database.url);
        shell.env("WORKSPACED_URL", &server.base).env("OPERATOR", &server.operator_token);
        let out = succeed(shell, &page);
        if page == "cli.md" {
            assert!(out.contains("1  hello") && out.contains("+hello") && out.contains("closed"), "{out}");
            assert!(std::fs::read_to_string(work.join("workspaced.1")).unwrap().contains(".TH workspaced"));
        }
    }
}

#[test]
fn every_block_says_what_it_is_and_can_be_read() {
    let blocks = blocks();
    assert!(blocks.len() >= 12, "{} blocks", blocks.len());
    for Block { page, language, text } in blocks {
        match language.as_str() {
            "sh" | "python" | "text" => {}
            "json" => drop(serde_json::from_str::<Value>(&text).unwrap_or_else(|error| panic!("{page}: {error}"))),
            "toml" => drop(text.parse::<toml::Table>().unwrap_or_else(|error| panic!("{page}: {error}"))),
            // The only excerpts of YAML are the configurations of Prometheus and of an agent, which tests give to that agent.
            "yaml" => {
                let known = [("operations/monitoring.md", "scrape_configs:\n"), ("agents.md", "name: workspaced\n")];
                assert!(known.iter().any(|(of, start)| page == *of && text.starts_with(start)), "{page}: {text}");
            }
            other => panic!("{page}: a block is marked `{other}`: use sh for commands that a test can run, else text"),
        }
    }
}

#[tokio::test]
async fn the_profile_and_the_request_of_the_policy_page_work_together() {
    let config = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(config.path(), &blocks_of("policy.md", "toml")[0]).unwrap();
    let server = Server::start_with(Setup::new(Backend::Sqlite).arg("--config", config.path().display())).await;
    let request: Value = serde_json::from_str(&blocks_of("policy.md", "json")[0]).unwrap();
    let run = server.run_from(&server.operator().post("/v1/runs", request).await.is(201)).await;
    run.create("docs/guide.md", "# Guide\n").await;
    for path in ["src/main.rs", "docs/legal/terms.md"] {
        let input = json!({"path": path, "content": "x\n", "reason": "try the profile"});
        run.call("write_file", input).await.refused("POLICY_DENIED");
    }
    run.call("delete_file", json!({"path": "docs/guide.md", "expectedSha256": "seen", "reason": "try the profile"}))
        .await
        .is(202);
}

#[test]
fn clients_can_start_the_bridge_with_the_arguments_of_the_page() {
    let json: Value = serde_json::from_str(blocks_of("mcp.md", "json").last().unwrap()).unwrap();
    let toml: toml::Table = blocks_of("mcp.md", "toml")[0].parse().unwrap();
    let toml = serde_json::to_value(&toml["mcp_servers"]["workspaced"]).unwrap();
    for entry in [&json["mcpServers"]["workspaced"], &toml] {
        assert_eq!(entry["command"], "workspaced");
        let args = entry["args"].as_array().unwrap().iter().map(|word| word.as_str().unwrap());
        let (folder, mut command) = (tempfile::tempdir().unwrap(), workspaced());
        let token = folder.path().join("run-token");
        std::fs::write(&token, "secret\n").unwrap();
        for name in entry["env"].as_object().unwrap().keys() {
            command.env(name, &token);
        }
        // Without input it ends at once, and sends nothing.
        command.args(args).stdin(std::process::Stdio::null());
        assert_eq!(succeed(command, "workspaced mcp"), "");
    }
}
