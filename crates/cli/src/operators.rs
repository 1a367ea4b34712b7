//! `operator`: operators and their tokens.

use futures_util::TryStreamExt as _;
use workspaced_client::{Client, CreatedOperator, NewOperator, NewOperatorToken, Operator, OperatorName, Scope};

use crate::connection::{Connection, Env, connect};
use crate::error::CliError;
use crate::listing::last_use;
use crate::output::Output;

/// Arguments of `operator`.
#[derive(Debug, clap::Args)]
pub struct OperatorArgs {
    #[command(subcommand)]
    action: OperatorAction,
    #[command(flatten)]
    pub(super) connection: Connection,
}

#[derive(Debug, clap::Subcommand)]
enum OperatorAction {
    /// Create an operator and print its token once.
    Add {
        /// Name: a letter or digit, then up to 63 letters, digits, `.`, `_`, `@`, `+` or `-`.
        #[arg(value_parser = parse_name)]
        name: OperatorName,
        /// What the operator may do: orchestrate, approve, audit or metrics; may be repeated.
        #[arg(long = "scope", value_name = "SCOPE", required = true, value_parser = parse_scope)]
        scopes: Vec<Scope>,
        /// When the token expires, RFC 3339 [default: never]
        #[arg(long, value_name = "TIME")]
        expires_at: Option<String>,
    },
    /// List operators.
    List,
    /// Give an operator another token, and print it once. The present one stays valid for a while.
    Rotate {
        /// Name.
        #[arg(value_parser = parse_name)]
        name: OperatorName,
        /// Seconds for which the present token stays valid, at most 604800; 0 ends it and every earlier one at once [default: 3600]
        #[arg(long, value_name = "N")]
        overlap_seconds: Option<u64>,
        /// When the new token expires, RFC 3339 [default: as the present one, if that has not expired]
        #[arg(long, value_name = "TIME")]
        expires_at: Option<String>,
    },
    /// Revoke an operator.
    Revoke {
        /// Name.
        #[arg(value_parser = parse_name)]
        name: OperatorName,
    },
}

/// Runs `operator`.
pub(super) async fn run(args: OperatorArgs, env: &Env<'_>) -> Result<(), CliError> {
    let client = connect(&args.connection.address, env)?;
    let output = Output::new(&args.connection, env);
    match args.action {
        OperatorAction::List => list(&client, output).await,
        OperatorAction::Add { name, scopes, expires_at } => {
            created(output, &client.create_operator(&NewOperator { name, scopes, expires_at }).await?)
        }
        OperatorAction::Rotate { name, overlap_seconds, expires_at } => {
            let new = NewOperatorToken { overlap_seconds, expires_at };
            created(output, &client.rotate_operator_token(&name, &new).await?)
        }
        OperatorAction::Revoke { name } => {
            client.revoke_operator(&name).await?;
            if !output.is_json {
                output.line(&format!("{name}: revoked"))?;
            }
            Ok(())
        }
    }
}

fn created(output: Output, created: &CreatedOperator) -> Result<(), CliError> {
    if output.is_json {
        return Ok(output.json(created)?);
    }
    let mut fields = vec![
        ("operator", created.operator.name.to_string()),
        ("scopes", scopes(&created.operator)),
        ("expires", created.operator.expires_at.clone().unwrap_or_default()),
    ];
    fields.push(("token", created.token.clone()));
    output.fields(&fields)?;
    output.note("the token is shown only here");
    Ok(())
}

async fn list(client: &Client, output: Output) -> Result<(), CliError> {
    let mut operators = std::pin::pin!(client.operators());
    let mut rows = Vec::new();
    while let Some(operator) = operators.try_next().await? {
        if output.is_json {
            output.json(&operator)?;
            continue;
        }
        let state = match (&operator.revoked_at, &operator.expires_at) {
            (Some(at), _) if operator.is_revoked() => format!("revoked {}", output.time(at)),
            (_, Some(at)) => format!("expires {}", output.time(at)),
            (_, None) => "valid".to_owned(),
        };
        let created =
            operator.created_at.as_ref().map_or_else(|| "in the configuration".to_owned(), |at| output.time(at));
        rows.push(vec![
            operator.name.to_string(),
            scopes(&operator),
            state,
            last_use(client, output, &actor_of(&operator)).await?,
            created,
            operator.created_by.clone().unwrap_or_default(),
        ]);
    }
    if !output.is_json {
        output.table(&["OPERATOR", "SCOPES", "TOKEN", "LAST RECORD", "CREATED", "BY"], &rows)?;
    }
    Ok(())
}

/// The name of an operator in records.
fn actor_of(operator: &Operator) -> String {
    format!("operator:{}", operator.name)
}

fn scopes(operator: &Operator) -> String {
    operator.scopes.iter().map(|scope| scope.as_str()).collect::<Vec<_>>().join(",")
}

fn parse_name(raw: &str) -> Result<OperatorName, String> {
    OperatorName::parse(raw).map_err(|error| error.to_string())
}

fn parse_scope(raw: &str) -> Result<Scope, String> {
    let names: Vec<_> = Scope::ALL.iter().map(|scope| scope.as_str()).collect();
    Scope::parse(raw).ok_or_else(|| format!("expected one of {}", names.join(", ")))
}
