//! Replacing the tokens of operators and the password of the database while callers go on.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use rstest::rstest;
use serde_json::json;
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, PgConnection, Row as _};
use tokio::sync::Mutex;

use crate::harness::{Backend, Client, Server, Setup, exhaustive, items, sha256, until};
use crate::operation::replay_and_repair::assert_ends;

/// Returns whether an operator's token is valid.
pub(crate) async fn is_accepted(server: &Server, token: &str) -> bool {
    let answer = Client::new(&server.base, Some(token)).get("/v1/operators/self").await;
    assert!([200, 401].contains(&answer.status), "{}", answer.text());
    answer.status == 200
}

#[rstest]
#[tokio::test]
async fn the_old_and_the_new_token_of_an_operator_are_valid_side_by_side(#[values(Backend::Sqlite)] backend: Backend) {
    let mut server = Server::start(backend).await;
    let operator = server.operator();
    let created = operator.post("/v1/operators", json!({"name": "ada", "scopes": ["audit"]})).await.is(201);
    let rotate = async |body| server.operator().post("/v1/operators/ADA/tokens", body).await;
    let token = |answer: &serde_json::Value| answer["token"].as_str().unwrap().to_owned();
    let first = token(&created);
    let answer = rotate(json!({"expiresAt": "2099-01-01T00:00:00Z"})).await;
    assert_eq!(answer.header("location"), "/v1/operators/ada");
    let answer = answer.is(201);
    let second = token(&answer);
    assert_eq!((&answer["name"], &answer["scopes"]), (&json!("ada"), &json!(["audit"])));
    assert!(is_accepted(&server, &first).await && is_accepted(&server, &second).await && first != second);
    // A repetition, after an answer that was lost, does not end the token that is in use.
    let third = token(&rotate(json!({"overlapSeconds": 600})).await.is(201));
    for accepted in [&first, &second, &third] {
        assert!(is_accepted(&server, accepted).await);
    }
    for bad in [
        json!({"overlapSeconds": 604_801}),
        json!({"overlapSeconds": -1}),
        json!({"expiresAt": "2001-01-01T00:00:00Z"}),
        json!({"name": "x"}),
    ] {
        rotate(bad).await.refused("INVALID_REQUEST");
    }
    for (name, code) in [("none-such", "NOT_FOUND"), ("operator", "INVALID_REQUEST"), ("audit", "INVALID_REQUEST")] {
        server.operator().post(&format!("/v1/operators/{name}/tokens"), json!({})).await.refused(code);
    }
    server.auditor().post("/v1/operators/ada/tokens", json!({})).await.refused("FORBIDDEN");
    let listed = items(&server.operator(), "/v1/operators").await;
    let ends: Vec<_> =
        listed.iter().filter(|one| one["name"] == "ada").map(|one| one["revokedAt"].is_string()).collect();
    assert_eq!(ends, [true, true, false], "{listed:#?}");
    assert_eq!(listed.last().unwrap()["expiresAt"], "2099-01-01T00:00:00.000000Z", "kept from the one before");
    assert!(!json!(listed).to_string().contains(&sha256(&third)));

    server.kill();
    server.restart();
    for accepted in [&first, &second, &third] {
        assert!(is_accepted(&server, accepted).await, "after a restart");
    }
    let client = workspaced_client::Client::new(&server.base, server.operator_token.as_str()).unwrap();
    let name = workspaced_client::OperatorName::parse("ada").unwrap();
    let another = workspaced_client::NewOperatorToken { overlap_seconds: Some(600), expires_at: None };
    let another = client.rotate_operator_token(&name, &another).await.unwrap().token;
    assert!(is_accepted(&server, &third).await && is_accepted(&server, &another).await);
    let third = another;
    // Without an overlap every earlier token ends.
    let fourth = token(&server.operator().post("/v1/operators/ada/tokens", json!({"overlapSeconds": 0})).await.is(201));
    assert!(!is_accepted(&server, &third).await && is_accepted(&server, &fourth).await);
    assert_eq!(server.operator().delete("/v1/operators/ada").await.status, 204);
    for refused in [&first, &second, &third, &fourth] {
        assert!(!is_accepted(&server, refused).await, "the operator was revoked");
    }
    server.kill();
    server.restart();
    for refused in [&first, &second, &third, &fourth] {
        assert!(!is_accepted(&server, refused).await, "the operator was revoked before the restart");
    }
}

#[rstest]
#[tokio::test]
async fn a_replaced_token_ends_with_its_overlap(#[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend) {
    let server = Server::start(backend).await;
    let created =
        server.operator().post("/v1/operators", json!({"name": "ada", "scopes": ["orchestrate"]})).await.is(201);
    let first = created["token"].as_str().unwrap().to_owned();
    let run = server.run(json!({})).await;
    let client = Client::new(&server.base, Some(&first));
    server.operator().post("/v1/operators/ada/tokens", json!({"overlapSeconds": 4})).await.is(201);
    let path = format!("/v1/runs/{}/tools/list_dir", run.id);
    assert_eq!(client.post(&path, json!({})).await.status, 200, "a call is recorded for the replaced token");
    until_accepted(&server, &first, false).await;
    client.post(&path, json!({})).await.refused("UNAUTHENTICATED");
}

#[rstest]
#[tokio::test]
async fn a_replaced_token_and_settings_with_two_are_valid(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
) {
    let mut server = Server::start(backend).await;
    let created = server.operator().post("/v1/operators", json!({"name": "ada", "scopes": ["audit"]})).await.is(201);
    let first = created["token"].as_str().unwrap().to_owned();
    let rotated = server.operator().post("/v1/operators/ada/tokens", json!({"overlapSeconds": 600})).await.is(201);
    let second = rotated["token"].as_str().unwrap().to_owned();
    assert!(server.stop().success());

    let (one, two, other) = (sha256("one"), sha256("two"), sha256("other"));
    let config = server.home.join("config.toml");
    let hashes = json!([sha256(&one), sha256(&two)]);
    std::fs::write(&config, format!("[[operator]]\nname = \"ci\"\ntoken_sha256 = {hashes}\nscopes = [\"audit\"]\n"))
        .unwrap();
    let tokens = server.home.join("operator.token");
    let primary = server.operator_token.clone();
    std::fs::write(&tokens, format!("{primary}\n{other}\n")).unwrap();
    let serve = |server: &Server| {
        let mut command = server.command("serve");
        command.args(["--listen", "127.0.0.1:0", "--config", config.to_str().unwrap()]);
        command.env_remove("WORKSPACED_OPERATOR_TOKEN").env("WORKSPACED_OPERATOR_TOKEN_FILE", &tokens);
        command
    };
    let command = serve(&server);
    server.start_as(command);
    for accepted in [&first, &second, &one, &two, &primary, &other] {
        assert!(is_accepted(&server, accepted).await);
    }
    let listed = items(&Client::new(&server.base, Some(&other)), "/v1/operators").await;
    let named = |name: &str| listed.iter().filter(|one| one["name"] == name).count();
    assert_eq!((named("operator"), named("ci")), (1, 1), "{listed:#?}");
    assert!(server.stop().success());
    for (content, says) in
        [(format!("{primary}\n{primary}\n"), "two different ones"), (format!("{primary}\nshort\n"), "too easy")]
    {
        std::fs::write(&tokens, content).unwrap();
        assert_ends(&serve(&server).output().unwrap(), 2, &[says]);
    }
    std::fs::write(&tokens, format!("{other}\n")).unwrap();
    let command = serve(&server);
    server.start_as(command);
    assert!(is_accepted(&server, &other).await && !is_accepted(&server, &primary).await);
}

/// Waits until the token is accepted, or is not.
async fn until_accepted(server: &Server, token: &str, expected: bool) {
    let what = if expected { "the token is accepted" } else { "the token is refused" };
    server.until(what, async || is_accepted(server, token).await == expected).await;
}

#[rstest]
#[tokio::test]
async fn a_hangup_replaces_tokens_and_profiles_of_files(#[values(Backend::Sqlite)] backend: Backend) {
    let mut server = Server::prepare(Setup::new(backend)).await;
    let [first, second, ci, ci_next, bob] = ["first", "second", "ci", "ci-next", "bob"].map(sha256);
    // Folders of their own, whose files are replaced, as secrets of a container are.
    let folder = server.home.join("settings");
    std::fs::create_dir(&folder).unwrap();
    let write = |name: &str, content: &str| {
        std::fs::write(folder.join("new"), content).unwrap();
        std::fs::rename(folder.join("new"), folder.join(name)).unwrap();
    };
    let operator = |name: &str, token: &str| {
        let hash = sha256(token);
        format!("[[operator]]\nname = \"{name}\"\ntoken_sha256 = \"{hash}\"\nscopes = [\"audit\"]\n")
    };
    let profile = |name: &str, glob: &str| format!("[profiles.{name}]\nwrite = [\"{glob}\"]\n");
    write("token", &first);
    write("config.toml", &(operator("ci", &ci) + &profile("DOCS", "docs/**")));
    server.setup = server.setup.clone().arg("--config", folder.join("config.toml").display());
    let mut command = server.command("serve");
    command.args(["--listen", "127.0.0.1:0"]).args(&server.setup.args);
    command.env_remove("WORKSPACED_OPERATOR_TOKEN").env("WORKSPACED_OPERATOR_TOKEN_FILE", folder.join("token"));
    server.start_as(command);
    let hang_up = || server.signal(rustix::process::Signal::HUP);
    assert!(is_accepted(&server, &first).await && is_accepted(&server, &ci).await);
    let create = async |token: &str, profile: &str| {
        let body = json!({"source": {"type": "empty"}, "policy": {"profile": profile}});
        Client::new(&server.base, Some(token)).post("/v1/runs", body).await
    };
    assert_eq!(create(&first, "DOCS").await.status, 201);
    create(&first, "TESTS").await.refused("INVALID_REQUEST");

    write("token", &second);
    write("config.toml", &(operator("ci", &ci_next) + &profile("TESTS", "tests/**")));
    assert!(is_accepted(&server, &first).await, "nothing changes before the signal");
    hang_up();
    until_accepted(&server, &second, true).await;
    for (token, expected) in [(&first, false), (&ci, false), (&ci_next, true)] {
        assert_eq!(is_accepted(&server, token).await, expected);
    }
    server.until_logged("operators and profiles were read again").await;
    assert_eq!(create(&second, "TESTS").await.status, 201);
    create(&second, "DOCS").await.refused("INVALID_REQUEST");

    // What cannot be used replaces nothing, and no secret is logged.
    let operator_client = Client::new(&server.base, Some(&second));
    operator_client.post("/v1/operators", json!({"name": "bob", "scopes": ["audit"]})).await.is(201);
    let good = [("token", second.clone()), ("config.toml", operator("ci", &ci_next))];
    for (failures, (name, content, why)) in (1..).zip([
        ("token", "short".to_owned(), "too easy to guess"),
        ("token", String::new(), "the file is empty"),
        ("config.toml", "unknown = 1\n".to_owned(), "unknown setting"),
        ("config.toml", operator("bob", &bob), "is in the configuration and in the database"),
        ("config.toml", operator("ci", &ci_next) + "[profiles.X]\nbad = 1\n", "unknown field `bad`"),
    ]) {
        write(name, &content);
        hang_up();
        server.until_logged_times("the previous ones stay in force", failures).await;
        assert!(server.log().contains(why), "{why}: {}", server.log());
        assert!(is_accepted(&server, &second).await && is_accepted(&server, &ci_next).await, "{why}");
        assert!(!is_accepted(&server, &bob).await, "{why}");
        for (name, content) in &good {
            write(name, content);
        }
    }
    assert!(!server.log().contains(&second) && !server.log().contains(&bob), "{}", server.log());
    write("config.toml", "");
    hang_up();
    until_accepted(&server, &ci_next, false).await;
    assert!(is_accepted(&server, &second).await);
}

/// A role of the cluster that must give its password, unlike the others.
struct Role {
    name: String,
    /// The rules of authentication, and the file that has them.
    rules: (String, String),
}

async fn superuser() -> PgConnection {
    PgConnection::connect(&std::env::var("WORKSPACED_TEST_POSTGRES_URL").unwrap()).await.unwrap()
}

async fn execute(sql: String) {
    superuser().await.execute(AssertSqlSafe(sql)).await.unwrap();
}

impl Role {
    async fn create(database: &str) -> Self {
        let name = format!("rotated_{database}");
        execute(format!("create role {name} login password 'first-{name}'")).await;
        execute(format!("alter database {database} owner to {name}")).await;
        let mut connection = superuser().await;
        let rules = "select current_setting('hba_file'), pg_read_file(current_setting('hba_file'))";
        let row = connection.fetch_one(rules).await.unwrap();
        let (file, rules): (String, String) = (row.get(0), row.get(1));
        let role = Self { name, rules: (file, rules) };
        let own = format!("local all {0} scram-sha-256\nhost all {0} all scram-sha-256\n", role.name);
        role.write_rules(&format!("{own}{}", role.rules.1)).await;
        role
    }

    async fn write_rules(&self, rules: &str) {
        let (file, rules) = (&self.rules.0, rules.replace('\'', "''"));
        execute(format!("copy (select unnest(string_to_array('{rules}', E'\\n'))) to '{file}'")).await;
        execute("select pg_reload_conf()".to_owned()).await;
    }

    async fn end_connections(&self) {
        execute(format!("select pg_terminate_backend(pid) from pg_stat_activity where usename = '{}'", self.name))
            .await;
    }
}

/// The rules of authentication are one file of the cluster.
static RULES: Mutex<()> = Mutex::const_new(());

#[tokio::test]
async fn a_password_file_that_is_replaced_is_read_again() {
    let _rules = RULES.lock().await;
    // The role owns the tables that it creates.
    let mut server = Server::prepare_empty(Setup::new(Backend::Postgres)).await;
    let url = server.database.url.clone();
    let database = url.split('?').next().unwrap().rsplit('/').next().unwrap().to_owned();
    let role = Role::create(&database).await;
    let (address, parameters) = url.split_once('?').unwrap();
    let kept: Vec<_> = parameters.split('&').filter(|one| !one.starts_with("user=")).collect();
    let url = format!("{address}?{}&user={}", kept.join("&"), role.name);
    let wrong = format!("{url}&password=wrong");
    until("a wrong password is refused", async || PgConnection::connect(&wrong).await.is_err()).await;
    let folder = server.home.join("passwords");
    std::fs::create_dir(&folder).unwrap();
    let write = |file: &str, password: &str| {
        let line = format!("*:*:*:{0}:{password}-{0}\n", role.name);
        std::fs::write(folder.join(file), line).unwrap();
        std::fs::set_permissions(folder.join(file), Permissions::from_mode(0o600)).unwrap();
    };
    write("pgpass", "first");
    let mut command = server.command("serve");
    command.args(["--listen", "127.0.0.1:0"]).env("WORKSPACED_DATABASE_URL", &url);
    command.env("PGPASSFILE", folder.join("pgpass"));
    server.start_as(command);
    let run = server.run(json!({})).await;
    run.create("a.txt", "x\n").await;
    write("next", "second");
    std::fs::rename(folder.join("next"), folder.join("pgpass")).unwrap();
    execute(format!("alter role {0} password 'second-{0}'", role.name)).await;
    role.end_connections().await;
    let input = json!({"path": "b.txt", "content": "x\n", "reason": "r"});
    let mut statuses = Vec::new();
    while statuses.last() != Some(&200) && statuses.len() < 20 {
        statuses.push(run.call("write_file", input.clone()).await.status);
    }
    assert_eq!(statuses.last(), Some(&200), "{statuses:?}\n{}", server.log());
    assert!(server.stop().success());
    role.write_rules(&role.rules.1).await;
}

#[tokio::test]
async fn the_password_of_the_database_is_replaced_without_a_stop() {
    let _rules = RULES.lock().await;
    // The role owns the tables that it creates.
    let mut server = Server::prepare_empty(Setup::new(Backend::Postgres)).await;
    let url = server.database.url.clone();
    let database = url.split('?').next().unwrap().rsplit('/').next().unwrap().to_owned();
    let role = Role::create(&database).await;
    let file = server.home.join("database.url");
    let with_password = |password: &str| {
        let (address, parameters) = url.split_once('?').unwrap();
        let kept: Vec<_> = parameters.split('&').filter(|one| !one.starts_with("user=")).collect();
        format!("{address}?{}&user={}&password={password}-{}\n", kept.join("&"), role.name, role.name)
    };
    let serve = |server: &Server| {
        let mut command = server.command("serve");
        command.args(["--listen", "127.0.0.1:0"]).env_remove("WORKSPACED_DATABASE_URL");
        command.env("WORKSPACED_DATABASE_URL_FILE", &file);
        command
    };
    // The server applies its rules some time after they are changed.
    let wrong = with_password("wrong");
    until("a wrong password is refused", async || PgConnection::connect(wrong.trim()).await.is_err()).await;
    std::fs::write(&file, with_password("first")).unwrap();
    let command = serve(&server);
    server.start_as(command);
    let run = server.run(json!({})).await;
    run.create("a.txt", "x\n").await;

    let calls = async {
        let (mut refused, mut done) = (0, 0);
        for number in 0..200 {
            let path = format!("/v1/runs/{}/tools/write_file", run.id);
            let body = json!({"path": format!("{number}.txt"), "content": "x\n", "reason": "r"});
            let answer = run.agent.post(&path, body).await;
            match answer.status {
                200 => done += 1,
                503 => refused += 1,
                other => panic!("{other}: {}", answer.text()),
            }
            run.operator.get("/v1/runs").await;
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        (refused, done)
    };
    let rotation = async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        // The new file replaces the old one, as secret stores do it.
        let next = server.home.join("database.url.next");
        std::fs::write(&next, with_password("second")).unwrap();
        std::fs::rename(&next, &file).unwrap();
        execute(format!("alter role {0} password 'second-{0}'", role.name)).await;
        for _ in 0..2 {
            tokio::time::sleep(Duration::from_millis(300)).await;
            role.end_connections().await;
        }
    };
    let ((refused, done), ()) = tokio::join!(calls, rotation);
    println!("{done} calls done, {refused} refused while the password was replaced and all connections ended twice");
    assert!(refused <= 10 && done >= 190, "{refused} refused, {done} done");
    run.create("b.txt", "x\n").await;
    assert!(server.log().contains("which was read again"), "{}", server.log());
    assert!(server.stop().success());
    role.write_rules(&role.rules.1).await;
    assert!(!server.log().contains("second-"), "the log has the password");
}
