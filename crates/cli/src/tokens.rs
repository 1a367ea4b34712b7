//! `token`: tokens of a run.

use std::mem;

use futures_util::TryStreamExt as _;
use serde_json::Value;
use workspaced_client::{Client, IssuedToken, NewToken, Permission, RunId, RunToken, TokenId};

use crate::call::parse_run;
use crate::connection::{Connection, Env, connect};
use crate::error::CliError;
use crate::listing::resolve_run;
use crate::output::Output;
use crate::token_file::TokenFileArgs;

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
    /// Create a token of a run, and print it, which is done only here, or write it to a file.
    Create {
        /// Run.
        #[arg(value_name = "RUN", value_parser = parse_run)]
        run: RunId,
        #[command(flatten)]
        new: NewTokenArgs,
        #[command(flatten)]
        token_file: TokenFileArgs,
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
    /// Permission, such as `file:read`; may be repeated [default: all but `event:append`, `evidence:attest`,
    /// `changeset:apply` and `command:serve`]
    #[arg(long = "permission", value_name = "NAME", value_parser = parse_permission)]
    permissions: Vec<Permission>,
    /// When the token expires, RFC 3339 [default: never]
    #[arg(long, value_name = "TIME")]
    expires_at: Option<String>,
}

/// Runs `token`.
pub(super) async fn run(args: TokenArgs, env: &Env<'_>) -> Result<(), CliError> {
    let client = connect(&args.connection.address, env)?;
    let output = Output::new(&args.connection, env);
    match args.action {
        TokenAction::List { run } => list(&client, output, &resolve_run(&client, run).await?).await,
        TokenAction::Create { run, new, token_file } => {
            let token_file = token_file.create()?;
            let permissions = Some(new.permissions).filter(|named| !named.is_empty());
            let new = NewToken { permissions, expires_at: new.expires_at };
            let mut issued = client.issue_token(&resolve_run(&client, run).await?, &new).await?;
            if let Some(file) = token_file {
                file.write(&mem::take(&mut issued.token))?;
            }
            created(output, &issued)
        }
        TokenAction::Rotate { run, token, expires_at } => {
            let run = resolve_run(&client, run).await?;
            let present = find(&client, &run, &token).await?.filter(|present| present.revoked_at.is_none());
            let Some(RunToken { permissions, .. }) = present else {
                let hint = format!("`workspaced token list {run}` lists those that it has");
                return Err(CliError::Failed(format!("the run has no valid token `{token}`: {hint}")));
            };
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
    if !issued.token.is_empty() {
        output.note("the token is shown only here");
    }
    Ok(())
}

async fn list(client: &Client, output: Output, run: &RunId) -> Result<(), CliError> {
    let mut rows = Vec::new();
    let mut tokens = std::pin::pin!(client.tokens(run));
    while let Some(token) = tokens.try_next().await? {
        if output.is_json {
            output.json(&token)?;
            continue;
        }
        let state = match (token.revoked_at, token.expires_at) {
            (Some(at), _) => format!("revoked {}", output.time(&at)),
            (None, Some(at)) => format!("expires {}", output.time(&at)),
            (None, None) => "valid".to_owned(),
        };
        let used = token.last_used_at.map_or_else(|| "none".to_owned(), |at| output.time(&at));
        let permissions: Vec<_> = token.permissions.iter().map(|permission| permission.as_str()).collect();
        rows.push(vec![token.token_id.to_string(), state, used, output.time(&token.created_at), permissions.join(",")]);
    }
    if !output.is_json {
        output.table(&["TOKEN", "STATE", "LAST CALL", "CREATED", "PERMISSIONS"], &rows)?;
    }
    Ok(())
}

/// Returns the token of the run that has this ID.
async fn find(client: &Client, run: &RunId, id: &TokenId) -> Result<Option<RunToken>, CliError> {
    let mut tokens = std::pin::pin!(client.tokens(run));
    while let Some(token) = tokens.try_next().await? {
        if token.token_id == *id {
            return Ok(Some(token));
        }
    }
    Ok(None)
}

fn parse_token(raw: &str) -> Result<TokenId, String> {
    TokenId::parse(raw).map_err(|error| error.to_string())
}

fn parse_permission(raw: &str) -> Result<Permission, String> {
    serde_json::from_value(Value::from(raw)).map_err(|_| format!("there is no permission `{raw}`"))
}
