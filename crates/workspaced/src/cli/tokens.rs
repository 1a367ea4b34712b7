//! `token`: tokens of a run.

use std::collections::BTreeMap;

use futures_util::TryStreamExt as _;
use serde_json::{Value, json};
use workspaced_client::{AuditFilter, Client, IssuedToken, NewToken, Permission, Record, RunId, TokenId};

use crate::cli::call::parse_run;
use crate::cli::connection::{Connection, Env, connect};
use crate::cli::error::CliError;
use crate::cli::listing::{last_use, resolve_run};
use crate::cli::output::Output;

/// Arguments of `token`.
#[derive(Debug, clap::Args)]
pub struct TokenArgs {
    #[command(subcommand)]
    action: TokenAction,
    #[command(flatten)]
    pub(super) connection: Connection,
}

#[derive(Debug, clap::Subcommand)]
enum TokenAction {
    /// List the tokens of a run, with the time of the last call of each.
    List {
        /// Run.
        #[arg(value_name = "RUN", value_parser = parse_run)]
        run: RunId,
    },
    /// Create a token of a run, and print it; it is shown only here.
    Create {
        /// Run.
        #[arg(value_name = "RUN", value_parser = parse_run)]
        run: RunId,
        #[command(flatten)]
        new: NewTokenArgs,
    },
    /// Create a token with the permissions of another one, which is revoked then.
    Rotate {
        /// Run.
        #[arg(value_name = "RUN", value_parser = parse_run)]
        run: RunId,
        /// Token that is replaced.
        #[arg(value_name = "TOKEN", value_parser = parse_token)]
        token: TokenId,
        /// When the new token expires, RFC 3339 [default: never]
        #[arg(long, value_name = "TIME")]
        expires_at: Option<String>,
    },
    /// Revoke a token of a run.
    Revoke {
        /// Run.
        #[arg(value_name = "RUN", value_parser = parse_run)]
        run: RunId,
        /// Token.
        #[arg(value_name = "TOKEN", value_parser = parse_token)]
        token: TokenId,
    },
}

#[derive(Debug, clap::Args)]
struct NewTokenArgs {
    /// Permission, such as `file:read`; may be repeated [default: all but `event:append` and `evidence:attest`]
    #[arg(long = "permission", value_name = "NAME", value_parser = parse_permission)]
    permissions: Vec<Permission>,
    /// When the token expires, RFC 3339 [default: never]
    #[arg(long, value_name = "TIME")]
    expires_at: Option<String>,
}

/// A token as the records of its run show it.
#[derive(Debug, Default)]
struct Known {
    permissions: Vec<String>,
    expires_at: Option<String>,
    created_at: String,
    revoked_at: Option<String>,
}

/// Runs `token`.
pub(super) async fn run(args: TokenArgs, env: &Env<'_>) -> Result<(), CliError> {
    let client = connect(&args.connection.address, env)?;
    let output = Output::new(&args.connection, env);
    match args.action {
        TokenAction::List { run } => list(&client, output, &resolve_run(&client, run).await?).await,
        TokenAction::Create { run, new } => {
            let permissions = Some(new.permissions).filter(|named| !named.is_empty());
            let new = NewToken { permissions, expires_at: new.expires_at };
            created(output, &client.issue_token(&resolve_run(&client, run).await?, &new).await?)
        }
        TokenAction::Rotate { run, token, expires_at } => {
            let run = resolve_run(&client, run).await?;
            let known = tokens_of(&client, &run).await?;
            let Some(present) = known.get(token.as_str()).filter(|present| present.revoked_at.is_none()) else {
                let hint = format!("`workspaced token list {run}` lists those that it has");
                return Err(CliError::Failed(format!("the run has no valid token `{token}`: {hint}")));
            };
            let permissions = present.permissions.iter().map(|name| parse_permission(name)).collect::<Result<_, _>>();
            let permissions = permissions.map_err(CliError::Failed)?;
            let issued = client.issue_token(&run, &NewToken { permissions: Some(permissions), expires_at }).await?;
            // Shown before the other one ends, because it is shown only here.
            created(output, &issued)?;
            Ok(client.revoke_token(&run, &token).await?)
        }
        TokenAction::Revoke { run, token } => {
            client.revoke_token(&resolve_run(&client, run).await?, &token).await?;
            if !output.is_json {
                output.line(&format!("{token}: revoked"))?;
            }
            Ok(())
        }
    }
}

fn created(output: Output, issued: &IssuedToken) -> Result<(), CliError> {
    if output.is_json {
        return Ok(output.json(issued)?);
    }
    let permissions: Vec<_> = issued.permissions.iter().map(|permission| permission.as_str()).collect();
    output.fields(&[
        ("id", issued.token_id.to_string()),
        ("permissions", permissions.join(",")),
        ("expires", issued.expires_at.clone().unwrap_or_default()),
        ("token", issued.token.clone()),
    ])?;
    output.note("the token is shown only here");
    Ok(())
}

async fn list(client: &Client, output: Output, run: &RunId) -> Result<(), CliError> {
    let mut rows = Vec::new();
    for (id, token) in tokens_of(client, run).await? {
        let Known { permissions, expires_at, created_at, revoked_at } = token;
        if output.is_json {
            output.json(&json!({
                "tokenId": id, "permissions": permissions, "createdAt": created_at, "expiresAt": expires_at,
                "revokedAt": revoked_at,
            }))?;
            continue;
        }
        let state = match (revoked_at, expires_at) {
            (Some(at), _) => format!("revoked {}", output.time(&at)),
            (None, Some(at)) => format!("expires {}", output.time(&at)),
            (None, None) => "valid".to_owned(),
        };
        let used = last_use(client, output, &format!("run-token:{id}")).await?;
        rows.push(vec![id, state, used, output.time(&created_at), permissions.join(",")]);
    }
    if !output.is_json {
        output.table(&["TOKEN", "STATE", "LAST CALL", "CREATED", "PERMISSIONS"], &rows)?;
    }
    Ok(())
}

/// Returns the tokens of a run by their IDs, from the records that create and revoke them.
async fn tokens_of(client: &Client, run: &RunId) -> Result<BTreeMap<String, Known>, CliError> {
    let mut known = BTreeMap::new();
    for tool in ["run.create", "token.issue", "token.revoke"] {
        let filter = AuditFilter { tool: Some(tool.to_owned()), ..AuditFilter::default() };
        let mut records = std::pin::pin!(client.run_audit(run, &filter));
        while let Some(record) = records.try_next().await? {
            note(&mut known, record);
        }
    }
    Ok(known)
}

fn note(known: &mut BTreeMap<String, Known>, record: Record) {
    let input = Value::Object(record.input.unwrap_or_default());
    let token = if record.tool == "run.create" { &input["token"] } else { &input };
    let Some(id) = token["tokenId"].as_str() else { return };
    let entry = known.entry(id.to_owned()).or_default();
    if record.tool == "token.revoke" {
        entry.revoked_at = Some(record.timestamp);
        return;
    }
    entry.created_at = record.timestamp;
    entry.expires_at = token["expiresAt"].as_str().map(str::to_owned);
    let permissions = token["permissions"].as_array().into_iter().flatten();
    entry.permissions = permissions.filter_map(Value::as_str).map(str::to_owned).collect();
}

fn parse_token(raw: &str) -> Result<TokenId, String> {
    TokenId::parse(raw).map_err(|error| error.to_string())
}

fn parse_permission(raw: &str) -> Result<Permission, String> {
    serde_json::from_value(Value::from(raw)).map_err(|_| format!("there is no permission `{raw}`"))
}
